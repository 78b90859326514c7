"""Typed settings on a command line, by argparse: `--dtype bf16`, `--dtype=bf16` or `dtype=bf16`."""

import argparse
import re
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from wallclock.constraints import Setting, text_of, value_of
from wallclock.errors import UsageError, check_name

#: `key=value`, perhaps with dashes; a path or a URL has other characters before its `=`.
_ASSIGNMENT = re.compile(r"(?:--)?([a-zA-Z][\w-]*)=(.*)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """Reads the arguments of a command and its settings; a mistake is one line, a UsageError."""

    def __init__(self, command: str, usage: str, about: str = "") -> None:
        super().__init__(
            prog=f"wallclock {command}",
            usage=f"wallclock {command} {usage}",
            description=about,
            formatter_class=partial(argparse.HelpFormatter, max_help_position=28, width=80),
            allow_abbrev=False,
            add_help=False,
        )
        self._settings: dict[str, Setting] = {}

    def add_settings(
        self, settings: Iterable[Setting], usual: Collection[str] = (), title: str = "more"
    ) -> None:
        """Add an option for each setting. All but the usual ones are listed under the title."""
        more = self.add_argument_group(title)
        for setting in settings:
            self._settings[setting.name] = setting
            group = self if setting.name in usual else more
            notes = [setting.allowed, f"default: {text_of(setting.default) or 'none'}"]
            options: dict[str, Any] = {"type": partial(value_of, default=setting.default)}
            options["metavar"] = "X" if isinstance(setting.default, str) else "N"
            if isinstance(setting.default, bool):
                options = {"action": argparse.BooleanOptionalAction}
            group.add_argument(
                f"--{setting.name.replace('_', '-')}",
                dest=setting.name,
                default=argparse.SUPPRESS,
                help=f"{setting.meaning} ({'; '.join(filter(None, notes))})".replace("%", "%%"),
                **options,
            )

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
        """The arguments, and the settings that were given, each of its default's type.

        Raises UsageError: a word is no setting, lacks its value, or is missing.
        """
        given, unknown = self.parse_known_intermixed_args(self.as_options(words))
        for word in unknown:
            name = word.lstrip("-").partition("=")[0].replace("-", "_")
            if word.startswith("-"):
                check_name(name, self._settings, "setting")
            self.error(f"{word}: {f'write --{name} X' if name in self._settings else 'unknown'}")
        values = {name: value for name, value in vars(given).items() if name in self._settings}
        return given, values

    def as_options(self, words: Iterable[str]) -> list[str]:
        """The words as argparse takes them: `max_failures=3` becomes `--max-failures=3`."""
        return [self._as_option(word) for word in words]

    def _as_option(self, word: str) -> str:
        match = _ASSIGNMENT.fullmatch(word)
        if match is None:
            return word.replace("_", "-") if word.startswith("--") else word
        name, text = match[1].replace("_", "-"), match[2]
        setting = self._settings.get(name.replace("-", "_"))
        if setting is None or not isinstance(setting.default, bool):
            return f"--{name}={text}"
        if text.lower() not in ("true", "false"):
            raise UsageError(f"{setting.name}={text}: give true or false")
        return f"--{name}" if text.lower() == "true" else f"--no-{name}"

    def error(self, message: str) -> NoReturn:
        """Raise UsageError: the cause, and where the options are listed."""
        raise UsageError(f"{message}; {self.format_usage().strip()}; --help lists the options")
