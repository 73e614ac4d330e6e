"""Registries: lazily imported built-ins, registration, plugin modules, installed packages, mistakes."""

from __future__ import annotations

import sys

import pytest

from stepformer.base import plugins
from stepformer.base.plugins import Registry, import_plugins, use_plugins
from stepformer.errors import UsageError


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setenv(plugins.VARIABLE, "")  # and so put back to what it was
    monkeypatch.setattr(plugins, "_imported", set())
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def make(**entries):
    return Registry("thing", "things", entries)


def install(folder, monkeypatch, points, group="stepformer.things"):
    """What an installed package leaves behind: metadata with entry points, on the path."""
    info = folder / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n" + "\n".join(f"{a} = {b}" for a, b in points.items()))
    monkeypatch.syspath_prepend(str(folder))


def test_built_ins_are_imported_when_asked_for():
    table = make(late="collections:OrderedDict", never="no_such_module:x", now=3)
    assert list(table) == ["late", "never", "now"] and len(table) == 3
    assert table["late"]() == {} and table["now"] == 3
    with pytest.raises(UsageError, match="no thing 'other'; there are: late, never, now"):
        table["other"]
    assert table.get("other") is None and "other" not in table


def test_a_name_is_registered_once():
    table = make(a=1)

    @table.register("f")
    def f():
        return 5

    assert table["f"] is f and table.register("f", f) is f
    with pytest.raises(UsageError, match="already"):
        table.register("f", lambda: 6)
    with pytest.raises(UsageError, match="already"):
        table.register("a", 2)


def test_installed_packages_add_names(tmp_path, monkeypatch):
    (tmp_path / "outside.py").write_text("def thing():\n    return 'outside'\n")
    install(tmp_path, monkeypatch, {"theirs": "outside:thing", "broken": "outside:missing", "a": "outside:thing"})
    table = make(a=1)
    assert table["a"] == 1  # nothing is looked for while a built-in is asked for
    with pytest.warns(RuntimeWarning, match="names a thing 'a', which already exists"):
        assert sorted(table) == ["a", "broken", "theirs"]
    assert table["theirs"]() == "outside" and table["a"] == 1
    with pytest.raises(UsageError, match=r"'broken' of the installed package outside \(outside:missing\) cannot"):
        table["broken"]
    with pytest.warns(RuntimeWarning, match="broken"):
        assert len(table.usable()) == 2


def test_plugin_modules_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = make(a=1)
    monkeypatch.setattr(plugins, "TABLE", table, raising=False)
    body = "from stepformer.base.plugins import TABLE\nTABLE.register({!r}, {})\n"
    (tmp_path / "in_folder.py").write_text(body.format("module", 10))
    (tmp_path / "a-file.py").write_text(body.format("file", 20))
    (tmp_path / "later.py").write_text(body.format("later", 30))
    use_plugins(["in_folder", " a-file.py"])
    assert table["module"] == 10 and table["file"] == 20
    use_plugins(["in_folder"])  # again: nothing happens twice
    assert plugins.os.environ[plugins.VARIABLE] == "in_folder,a-file.py"
    # as a process that this one starts would find it
    monkeypatch.setenv(plugins.VARIABLE, "in_folder, later")
    assert table["later"] == 30
    assert str(tmp_path) not in sys.path


def test_what_cannot_be_imported_gets_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("1 / 0\n")
    for name, says in (("bad", "ZeroDivisionError"), ("./bad.py", "ZeroDivision"), ("none", "No module named"),
                       ("none.py", "there is no plugin file none.py")):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            import_plugins([name])
    monkeypatch.setenv(plugins.VARIABLE, "bad")
    table = make(a=1)
    assert table["a"] == 1
    with pytest.raises(UsageError, match="the plugin bad cannot be imported"):
        list(table)
