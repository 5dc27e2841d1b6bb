"""Pages of the site that are not in docs/: README as its index, the API, the settings and
the schemas of documents, which are made of the code, and files that pages link to.

Pages are written to be read in the repository, so they link to files beside docs/. Such a file
becomes a page of the site: Markdown as it is, anything else as a listing of its text. Links are
rewritten to those pages, and what leads nowhere ends the build.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(_ROOT))  # mkdocs is run by its own script
from tests.support import api_page, schemas_page, settings_page  # noqa: E402 - found by the line above

_MADE = {
    "api.md": api_page.page,
    "settings.md": settings_page.page,
    "json.md": schemas_page.page,
}
_FENCED = re.compile(r"^(```+).*?^\1`*$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]+)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that they have in the repository."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": _anchor}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages of the code, README, and all that pages link to, also over several steps."""
    for uri, page in _MADE.items():
        files.append(File.generated(config, uri, content=page()))
    for uri, text in schemas_page.files().items():
        files.append(File.generated(config, uri, content=text))
    waiting = [_ROOT / "README.md", *(_ROOT / "docs").rglob("*.md")]
    seen = set(waiting)
    while waiting:
        file = waiting.pop()
        uri = _uri(file)
        if files.get_file_from_path(uri) is None:
            files.append(File.generated(config, uri, content=_content(file)))
        for target in _targets(file) - seen:
            seen.add(target)
            waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links lead to where the site has their files."""
    del config, files
    uri = page.file.src_uri
    if uri.startswith("source/"):
        return markdown
    here = _file(uri).parent

    def rewritten(link: re.Match[str]) -> str:
        to = relpath(_uri(_existing(here, link[1])), PurePosixPath(uri).parent)
        return f"]({to}{link[2] or ''})"

    return _outside_fences(markdown, lambda text: _LINK.sub(rewritten, text))


def _uri(file: Path) -> str:
    """Return where the site has a file of the repository."""
    path = file.relative_to(_ROOT).as_posix()
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"source/{path}.md"


def _file(uri: str) -> Path:
    """Return the file of the repository that a page was made of."""
    if uri == "index.md":
        return _ROOT / "README.md"
    in_docs = _ROOT / "docs" / uri
    return in_docs if in_docs.exists() or uri in _MADE else _ROOT / uri


def _content(file: Path) -> str:
    text = file.read_text()
    if file.suffix == ".md":
        return text
    path = file.relative_to(_ROOT).as_posix()
    language = {".py": "python"}.get(file.suffix, file.suffix.removeprefix("."))
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n"
    return f"{head}``````{language}\n{text.rstrip()}\n``````\n"


def _targets(file: Path) -> set[Path]:
    if file.suffix != ".md":
        return set()
    text = _FENCED.sub("", file.read_text())
    found = {_existing(file.parent, x[1]) for x in _LINK.finditer(text)}
    return found - {_ROOT / "docs" / x for x in _MADE}


def _existing(folder: Path, target: str) -> Path:
    found = (folder / target).resolve()
    if found.parent == _ROOT / "docs" and found.name in _MADE:
        return found
    if not found.is_file() or not found.is_relative_to(_ROOT):
        raise PluginError(f"{folder.relative_to(_ROOT)}: a link to {target}: no such file")
    return found


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for block in _FENCED.finditer(text):
        parts += [change(text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, change(text[end:])])


def _anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)
