"""`make docs`: a site without a warning, that needs no network, and whose links lead somewhere."""

import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import wallclock
from docs.pages import ALIASES, LIBRARY
from tests.conftest import ON_PATH, ROOT, run_command

MENU = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")


def test_every_document_is_in_the_menu() -> None:
    linked = {
        ((ROOT / "docs") / name).resolve() for name in re.findall(r"\]\(([^)#]+\.md)\)", MENU)
    }
    documents = {*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), *ROOT.glob("data/reference/*/*.md")}
    assert linked >= documents - {ROOT / "README.md", ROOT / "docs" / "README.md"}


def test_every_public_name_is_in_the_reference() -> None:
    listed = [name for names in LIBRARY.values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(wallclock.__all__) <= set(listed)


class Page(HTMLParser):
    """Ids and links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[tuple[str, str]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value is not None:
                self.links.append((tag, value))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for module in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(module)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-c", "docs"]
    folders = ("-d", str(folder / "doctrees"), ".", str(folder / "html"))
    done = run_command(*command, *folders, env={**os.environ, **ON_PATH})
    assert not done.stderr
    return folder / "html"


def pages(site: Path) -> dict[Path, Page]:
    """Those of documents; the report and the like have tests of their own."""
    documents = [site / "index.html", *site.glob("*.html"), *site.glob("docs/*.html")]
    documents += [*site.glob("docs/generated/*.html"), *site.glob("data/**/*.html")]
    made = {"report.html", "genindex.html", "search.html"}
    return {path: Page(path) for path in dict.fromkeys(documents) if path.name not in made}


def broken(path: Path, site: Path, known: dict[Path, Page]) -> Iterator[str]:
    for tag, link in known[path].links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if tag != "a":
                yield f"{path.name} needs {link} from the network"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        is_there = target.is_file() and site in target.parents
        anchors = {"", unquote(parts.fragment)} if target not in known else {"", *known[target].ids}
        if not is_there or unquote(parts.fragment) not in anchors:
            yield f"{path.name} links to {link}"


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSite:
    def test_links_and_anchors(self, site: Path) -> None:
        page_names = pages(site)
        assert len(page_names) > 25
        problems = [text for path in page_names for text in broken(path, site, page_names)]
        assert not problems, "\n".join(problems[:20])

    def test_every_public_name_is_on_the_page(self, site: Path) -> None:
        page = Page(site / "docs" / "generated" / "library.html")
        names = [ALIASES.get(name, f"wallclock.{name}") for name in wallclock.__all__]
        assert [name for name in names if not {name, f"module-{name}"} & page.ids] == []

    def test_pages_that_are_not_committed(self, site: Path) -> None:
        """The menu has columns, claims, settings and the library, a page the report."""
        menu = [link for _, link in Page(site / "index.html").links]
        names = ("columns", "claims", "settings", "library")
        assert {f"docs/generated/{name}.html" for name in names} <= {*menu}
        assert "../report.html" in [link for _, link in Page(site / "docs" / "README.html").links]
        assert (site / "report.html").read_text(encoding="utf-8").count("<svg") > 10

    def test_no_font_is_fetched(self, site: Path) -> None:
        for path in site.rglob("*.css"):
            assert not re.search(r"url\(\s*['\"]?(https?:)?//", path.read_text("utf-8")), path.name
