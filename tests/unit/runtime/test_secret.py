"""Secrets in files."""

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import Secret, read_secret
from changefeed.runtime.secret_settings import HasSecrets


def test_what_surrounds_a_secret_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" c2VjcmV0 \n")
    (tmp_path / "mounted").symlink_to(file)  # as Kubernetes mounts them
    assert read_secret(tmp_path / "mounted") == "c2VjcmV0"


class OfBackend(HasSecrets):
    password: SecretStr | None = None
    user: str | None = None


def test_every_secret_may_be_in_a_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    settings = OfBackend.model_validate({"password_file": str(file)})
    assert settings.secret_of("password") == Secret.of("from a file")
    assert OfBackend.model_validate({"password": "given"}).file_of("password") is None
    for wrong in (
        {"user_file": "f"},
        {"password_file": 5},
        {"password_file": "f", "password": "p"},
    ):
        with pytest.raises(ValueError, match="_file"):
            OfBackend.model_validate(wrong)


@pytest.mark.parametrize("kind", ["missing", "empty", "folder", "pipe", "binary"])
def test_what_holds_no_secret_is_refused_by_its_name_and_never_waited_for(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / kind
    match kind:
        case "empty":
            file.write_text("\n")
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "binary":
            file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=str(file)):
        read_secret(file)


def test_a_renewed_secret_is_taken_and_the_last_one_kept_while_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("key")
    file.write_text("one")
    secret = Secret.in_file(file).within(str.upper)
    monkeypatch.chdir("/")  # as an observer may
    (tmp_path / file).write_text("two")
    assert secret.current() == "TWO"
    for _ in range(2):
        (tmp_path / file).write_text("")
        assert secret.current() == "TWO"
    assert [x.levelname for x in caplog.records] == ["WARNING"]
    assert "two" not in caplog.text
