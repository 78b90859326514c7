"""As for the harness's engines: libraries have one thread before a loader forks."""

from tests.harness.engines.conftest import _single_threaded_libraries as _single_threaded_libraries
