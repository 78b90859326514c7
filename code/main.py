"""python code/main.py [--quick] [--n N] [--experiment a,b|all] [Hydra overrides ...]"""

import shlex
import sys
from typing import NoReturn

try:
    import hydra
    from omegaconf import DictConfig

    from harness.spec import Settings
    from paper import settings
    from paper.session import run_session
    from paper.usage import usage
    from wallclock import __version__
    from wallclock.errors import UserError
    from wallclock.outside import guard_screen, text_of, without_secrets
except ModuleNotFoundError as error:
    fix = f"type `make setup`, then `.venv/bin/python {shlex.join(sys.argv)}`"
    sys.exit(f"main.py: this Python lacks {error.name}; {fix}; or install requirements/dev.lock")
except KeyboardInterrupt:
    sys.exit(130)

#: Exit status where the settings cannot be resolved: whatever is wrong with them was typed.
MISTYPED = 2


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def hydra_job(config: DictConfig) -> None:
    """One job of a sweep; Hydra composed it and would print a traceback for a user's error."""
    try:
        resolved = settings.resolve(config)
    except UserError as error:
        refuse(error, MISTYPED)
    run(resolved)


def run(resolved: Settings) -> None:
    """Run what the settings ask for; exit with status 1 if a cell crashed."""
    try:
        status = run_session(resolved, COMMAND)
    except UserError as error:
        refuse(error, error.status)
    if status:
        sys.exit(status)


def refuse(error: UserError, status: int) -> NoReturn:
    """End with one line instead of a traceback."""
    print(f"wallclock: {error}", file=sys.stderr)
    sys.exit(status)


def main() -> None:
    """Compose the settings here, or leave that to Hydra where one of its flags is given."""
    guard_screen()
    if {"--help", "-h"} & set(sys.argv[1:]):
        print(usage(settings.CONF))
        return
    if "--version" in sys.argv[1:]:
        print(f"wallclock {__version__}")
        return
    try:
        overrides = settings.translate(sys.argv[1:])
        if overrides[0].startswith("-"):
            settings.check_names(overrides)
            sys.argv[1:] = overrides
            hydra_job()
        else:
            run(settings.load(overrides))
    except UserError as error:
        refuse(error, MISTYPED)
    except KeyboardInterrupt:
        stopped = "stopped; what is complete is kept, the same command resumes"
        print(f"\nwallclock: {stopped}", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    COMMAND = without_secrets(text_of(shlex.join(["python", *sys.argv])))
    main()
