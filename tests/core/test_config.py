"""Settings from the environment and from interposer.toml, and what is wrong with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interposer.core.config import (
    COUNT,
    FLAG,
    PATH,
    SECONDS,
    Setting,
    config_files,
    disabled_backends,
    settings,
    thread_budget,
)
from interposer.core.errors import ConfigError

DISABLED = settings()["disabled_backends"]
TIMEOUT = settings()["probe_seconds"]
UNLOAD = settings()["unload_libraries"]
ALLOW_LIST = settings()["backend_allow_list"]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """The files here and of the user, which are missing yet."""
    for name in [setting.variable for setting in settings().values()]:
        monkeypatch.delenv(name, raising=False)
    here, user = tmp_path / "here", tmp_path / "settings" / "interposer"
    here.mkdir()
    user.mkdir(parents=True)
    monkeypatch.chdir(here)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(user.parent))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "machine"))
    return Path("interposer.toml"), user / "interposer.toml"


# --- precedence -------------------------------------------------------------------------------------------------------


def test_an_argument_beats_the_environment_which_beats_the_file_here_which_beats_the_users(folders, monkeypatch):
    here, user = folders
    assert DISABLED.read() is None
    user.write_text('disabled_backends = ["FromUser"]')
    assert DISABLED.read() == ("FromUser",)
    here.write_text('disabled_backends = ["FromHere"]')
    assert DISABLED.read() == ("FromHere",)
    monkeypatch.setenv(DISABLED.variable, "FromEnvironment, Another,")
    assert DISABLED.read() == ("FromEnvironment", "Another")
    assert DISABLED.read(("Argument",)) == ("Argument",)


def test_a_file_without_the_key_leaves_the_word_to_the_next(folders):
    here, user = folders
    here.write_text("unload_libraries = true")
    user.write_text('disabled_backends = "CpuRef"\nunload_libraries = false')
    assert DISABLED.read() == ("CpuRef",)
    assert UNLOAD.read() is True


def test_an_empty_list_in_the_environment_is_a_list(folders, monkeypatch):
    _, user = folders
    user.write_text('disabled_backends = ["CpuRef"]')
    assert disabled_backends() == {"CpuRef"}
    monkeypatch.setenv(DISABLED.variable, "")
    assert disabled_backends() == frozenset()


def test_an_empty_variable_says_nothing_of_a_number(folders, monkeypatch):
    _, user = folders
    user.write_text("probe_seconds = 2")
    monkeypatch.setenv(TIMEOUT.variable, " ")
    assert TIMEOUT.read() == 2.0


def test_the_users_folder_is_below_the_home_folder_as_a_rule(folders, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative/and/so/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".config" / "interposer").mkdir(parents=True)
    (tmp_path / ".config" / "interposer" / "interposer.toml").write_text("probe_seconds = 1.5")
    assert TIMEOUT.read() == 1.5


def test_a_file_in_a_folder_that_cannot_be_entered_does_not_exist(folders, monkeypatch, tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    user = os.geteuid()
    os.seteuid(user or 65534)  # root may enter all folders
    try:
        assert TIMEOUT.read() is None
    finally:
        os.seteuid(user)
        home.chmod(0o700)  # so that the folder can be deleted


def test_a_file_of_the_machine_has_what_no_file_of_the_user_has(folders, monkeypatch, tmp_path):
    _, user = folders
    for name, seconds in (("first", 3), ("second", 4)):
        (tmp_path / name / "interposer").mkdir(parents=True)
        text = f'probe_seconds = {seconds}\nbackend_path = ["/opt/{name}"]'
        (tmp_path / name / "interposer" / "interposer.toml").write_text(text)
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"relative:{tmp_path / 'first'}:{tmp_path / 'second'}")
    user.write_text("probe_seconds = 2")
    assert TIMEOUT.read() == 2.0
    assert settings()["backend_path"].read() == ("/opt/first",)


def test_the_folder_of_the_machine_is_in_etc_as_a_rule(monkeypatch):
    monkeypatch.delenv("XDG_CONFIG_DIRS")
    assert config_files()[-1] == Path("/etc/xdg/interposer/interposer.toml")


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SECONDS, "2.5", 2.5),
        (SECONDS, "0", 0.0),
        (COUNT, "3", 3),
        (FLAG, "Yes", True),
        (FLAG, "0", False),
        (PATH, "/etc/list", Path("/etc/list")),
    ],
)
def test_a_variable_is_read_as_its_kind(kind, text, value, folders, monkeypatch):
    monkeypatch.setenv("INTERPOSER_SOMETHING", text)
    assert Setting("something", "INTERPOSER_SOMETHING", kind).read() == value


@pytest.mark.parametrize(
    ("kind", "text", "wanted"),
    [
        (SECONDS, "-1", "a number of seconds that is not negative"),
        (SECONDS, "nan", "a number of seconds that is not negative"),
        (SECONDS, "inf", "a number of seconds that is not negative"),
        (SECONDS, "soon", "a number of seconds that is not negative"),
        (COUNT, "1.5", "a whole number that is not negative"),
        (COUNT, "-1", "a whole number that is not negative"),
        (FLAG, "perhaps", "yes or no (true or false in a file)"),
        (PATH, "list.txt", "the absolute path of a file"),
        (PATH, "~nobody-of-this-name/list.txt", "the absolute path of a file"),
    ],
)
def test_a_variable_that_cannot_be_meant_is_named_with_what_is_expected(kind, text, wanted, folders, monkeypatch):
    monkeypatch.setenv("INTERPOSER_SOMETHING", text)
    with pytest.raises(ConfigError) as caught:
        Setting("something", "INTERPOSER_SOMETHING", kind).read()
    assert str(caught.value) == f"INTERPOSER_SOMETHING is {text!r}; expected {wanted}"
    assert caught.value.source == "INTERPOSER_SOMETHING"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("disabled_backends = 5", "disabled_backends is 5; expected names, in a variable separated by commas"),
        ("disabled_backends = [5]", "disabled_backends is [5]; expected names, in a variable separated by commas"),
        ("probe_seconds = true", "probe_seconds is True; expected a number of seconds that is not negative"),
        ("probe_seconds = []", "probe_seconds is []; expected a number of seconds that is not negative"),
        ("unload_libraries = 1", "unload_libraries is 1; expected yes or no (true or false in a file)"),
        ("backend_allow_list = 1", "backend_allow_list is 1; expected the absolute path of a file"),
    ],
)
def test_a_value_in_a_file_that_cannot_be_meant_is_named_with_the_file(line, text, folders):
    _, user = folders
    user.write_text(line)
    with pytest.raises(ConfigError) as caught:
        settings()[line.split()[0]].read()
    assert str(caught.value) == f"{user}: {text}"


# --- files ------------------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_named_with_the_nearest(folders):
    here, _ = folders
    here.write_text("disable_backends = []")
    with pytest.raises(ConfigError) as caught:
        TIMEOUT.read()
    assert str(caught.value).startswith(
        "interposer.toml has an unknown key 'disable_backends'; did you mean 'disabled_backends'? (known: disabled_"
    )


@pytest.mark.parametrize("key", ["backend_allow_list", "probe_seconds"])
def test_a_file_in_the_working_directory_must_not_decide_what_is_trusted(key, folders):
    here, user = folders
    here.write_text(f"{key} = 0")
    with pytest.raises(ConfigError) as caught:
        DISABLED.read()
    variable, machine = settings()[key].variable, config_files()[-1]
    places = f"{variable} or {user} or {machine}"
    assert str(caught.value) == f"interposer.toml has the key {key!r}, which only {places} may set"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"a = [", "is not valid TOML: "),
        (b"\xff\xfe", "is not valid TOML: 'utf-8' codec can't decode byte 0xff"),
        (b"a = " + b"[" * 100_000, "is not valid TOML: "),
    ],
    ids=["truncated", "not UTF-8", "nested too deeply"],
)
def test_a_file_that_is_no_toml_is_named(content, text, folders):
    here, _ = folders
    here.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        DISABLED.read()
    assert str(caught.value).startswith(f"interposer.toml {text}")


def test_a_folder_in_the_place_of_the_file_is_named(folders):
    here, _ = folders
    here.mkdir()
    with pytest.raises(ConfigError) as caught:
        DISABLED.read()
    assert str(caught.value) == "interposer.toml cannot be read: Is a directory"


def test_a_settings_file_that_never_ends_is_not_read(folders):
    os.mkfifo("interposer.toml")
    with pytest.raises(ConfigError) as caught:
        DISABLED.read()
    assert str(caught.value) == "interposer.toml cannot be read: it is a pipe, not a regular file"


def test_a_byte_order_mark_of_a_settings_file_is_skipped(folders):
    Path("interposer.toml").write_bytes(b'\xef\xbb\xbfdisabled_backends = "Npu"\n')
    assert DISABLED.read() == ("Npu",)


@pytest.fixture
def cores(folders, tmp_path, monkeypatch):
    """Pretends that this process may use cores with these capacities; None: the system reports none."""

    def cores(*capacities: int | None) -> None:
        for core, capacity in enumerate(capacities):
            folder = tmp_path / "cores" / f"cpu{core}"
            folder.mkdir(parents=True)
            if capacity is not None:
                (folder / "cpu_capacity").write_text(f"{capacity}\n")
        monkeypatch.setattr("interposer.core.config._CORES", tmp_path / "cores")
        monkeypatch.setattr("interposer.core.config._CGROUP_2", tmp_path / "no quota")
        monkeypatch.setattr("interposer.core.config._CGROUP_1", tmp_path)
        monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(len(capacities))), raising=False)

    return cores


@pytest.mark.parametrize(
    ("capacities", "budget"),
    [
        ((400, 400, 400, 400, 1024, 1024), 2),
        ((300, 300, 800, 800, 1024), 3),
        ((1024, 1024, 1024), 3),
        ((None, None), 2),
        ((446,), 1),
    ],
)
def test_little_cores_are_not_counted_beside_big_ones(cores, capacities, budget):
    cores(*capacities)
    assert thread_budget() == budget
    assert thread_budget(5) == 5
