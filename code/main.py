"""python code/main.py [--quick] [--n N] [--experiment a,b|all] [Hydra overrides ...]"""

import os
import shlex
import sys

try:
    import hydra
    from omegaconf import DictConfig

    from wallclock import settings
    from wallclock.errors import UserError
    from wallclock.session import run_session
except ModuleNotFoundError as error:
    sys.exit(
        f"main.py: this Python lacks {error.name}; type `make setup`, then `.venv/bin/python {shlex.join(sys.argv)}`"
    )
except KeyboardInterrupt:
    sys.exit(130)


@hydra.main(version_base="1.3", config_path="../conf", config_name="config")
def run(config: DictConfig) -> None:
    """Resolve the settings and run them; a user's mistake is one line, not a traceback."""
    try:
        status = run_session(settings.resolve(config), COMMAND)
    except UserError as error:
        sys.exit(f"wallclock: {error}")
    if status:
        sys.exit(status)


def main() -> None:
    """Translate the article's flags, check the names, hand over to Hydra."""
    try:
        arguments = settings.translate(sys.argv[1:])
        if any(argument.startswith("-") for argument in arguments):
            settings.check_names(arguments)
        else:
            settings.check(arguments)
        sys.argv[1:] = arguments
        run()
    except UserError as error:
        sys.exit(f"wallclock: {error}")
    except KeyboardInterrupt:
        print(
            "\nwallclock: stopped; what is complete is kept, the same command resumes",
            file=sys.stderr,
        )
        sys.exit(130)


if __name__ == "__main__":
    # A path on it need not be UTF-8; the records are.
    COMMAND = os.fsencode(shlex.join(["python", *sys.argv])).decode("utf-8", "backslashreplace")
    main()
