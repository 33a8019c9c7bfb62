"""Ends, full disks and failures while the log is compacted: no acknowledged row is lost, and nothing hangs."""

import asyncio
import contextlib
import errno
import json
import os
import threading

import pytest

pytest.importorskip("fastapi")

from asgi import call, running
from safetensors import safe_open
from served import pushed, service

import neuralcde.serve.app as app_module
from neuralcde.serve import LogError, make_app

SECONDS = 20  # that nothing takes unless it hangs


async def soon(work):
    return await asyncio.wait_for(work, SECONDS)


def last_time(folder, id="a"):
    """The last row of a stream after a restart."""
    again = service(folder)
    again.open()
    again.log.close()
    return again.streams.last_time(id)


def test_an_end_during_a_slow_save_loses_no_row(tmp_path, monkeypatch):
    """The save that was under way at the end does not replace a later one, whose rows have left the log."""
    monkeypatch.setattr(app_module, "SECONDS_BETWEEN_CHORES", 0.01)
    made, begun, release = service(tmp_path, log_lines=1), threading.Event(), threading.Event()
    made.open()
    save = made._save

    def slow(*arguments):
        if not begun.is_set():
            begun.set()
            release.wait(SECONDS)
        save(*arguments)

    made._save = slow

    async def work():
        async with running(make_app(made)):
            await made.push("a", {"t": 0})
            await asyncio.to_thread(begun.wait, SECONDS)
            for t in range(1, 6):
                await made.push("a", {"t": t})
            asyncio.get_running_loop().call_later(0.3, release.set)
        release.set()

    asyncio.run(work())  # waits for the threads
    assert last_time(tmp_path) == 5


def test_an_older_snapshot_does_not_replace_a_later_one(tmp_path):
    made = pushed(tmp_path, [("a", 0.0, {})], end=True)
    older = made._snapshot()
    made.streams.push("a", 1.0)
    made.log.number += 1
    made._save(*made._snapshot())
    made._save(*older)
    assert last_time(tmp_path) == 1


def test_a_cancelled_compaction_goes_on(tmp_path):
    made, begun, release = service(tmp_path), threading.Event(), threading.Event()
    made.open()
    save = made._save

    def slow(*arguments):
        begun.set()
        release.wait(SECONDS)
        save(*arguments)

    async def work():
        await made.push("a", {"t": 0})
        made._save = slow
        task = asyncio.create_task(made.compact())
        await asyncio.to_thread(begun.wait, SECONDS)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        release.set()
        await soon(closing)

    asyncio.run(work())
    assert last_time(tmp_path) == 0


def test_if_no_new_log_file_can_be_opened_rows_go_on_in_the_old_one(tmp_path, monkeypatch):
    made, real = service(tmp_path, log_lines=1), os.open

    def no_descriptors(path, *arguments, **options):
        if "log-" in str(path):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *arguments, **options)

    async def work():
        app = make_app(made)
        async with running(app):
            assert (await soon(call(app, "POST", "/streams/a", {"t": 0}))).status == 200
            monkeypatch.setattr(os, "open", no_descriptors)
            with pytest.raises(LogError, match=r"no new file of the log can be begun: .* Too many open files"):
                await soon(made.compact())
            assert (await soon(call(app, "POST", "/streams/a", {"t": 1}))).status == 200
            health = await call(app, "GET", "/health")
            assert health.status == 200
            assert "the states cannot be saved: no new file of the log" in health.json()["status"]
            assert b"neuralcde_saving 0\n" in (await call(app, "GET", "/metrics")).content
            monkeypatch.setattr(os, "open", real)
            assert last_time(tmp_path) == 1  # as after a kill
            await soon(made.compact())
            assert (await call(app, "GET", "/health")).json() == {"status": "ok"}
            assert (await soon(call(app, "POST", "/streams/a", {"t": 2}))).status == 200

    asyncio.run(work())
    assert last_time(tmp_path) == 2


def test_any_failure_of_a_write_is_told(tmp_path):
    made = service(tmp_path)

    def fails(content):
        raise RuntimeError("cannot start new thread")

    async def work():
        app = make_app(made)
        async with running(app):
            made.log._write_now = fails
            for _ in range(2):
                refused = await soon(call(app, "POST", "/streams/a", {"t": 0}))
                assert refused.status == 503
                assert "the log cannot be written" in refused.json()["detail"]
            assert (await call(app, "GET", "/health")).status == 503

    asyncio.run(work())


def test_a_cancelled_turn_does_not_stop_the_log(tmp_path):
    made, release = service(tmp_path), threading.Event()
    made.open()
    write = made.log._write_now

    def slow(content):
        release.wait(SECONDS)
        write(content)

    async def work():
        await made.push("a", {"t": 0})
        made.log._write_now = slow
        push = asyncio.create_task(made.push("a", {"t": 1}))
        await asyncio.sleep(0.05)
        turn = asyncio.create_task(made.log.turn_over())
        await asyncio.sleep(0.05)
        turn.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await turn
        release.set()
        assert (await soon(push))["t"] == 1
        assert (await soon(made.push("a", {"t": 2})))["t"] == 2
        await soon(made.close())

    asyncio.run(work())
    assert last_time(tmp_path) == 2


def test_a_row_that_comes_again_waits_for_the_disk_although_the_first_request_is_gone(tmp_path):
    made, release = service(tmp_path), threading.Event()
    made.open()
    write = made.log._write_now

    def slow(content):
        release.wait(SECONDS)
        write(content)

    async def work():
        made.log._write_now = slow
        first = asyncio.create_task(made.push("a", {"t": 0}))
        await asyncio.sleep(0.05)
        first.cancel()
        again = asyncio.create_task(made.push("a", {"t": 0}))
        await asyncio.sleep(0.05)
        assert not again.done()
        release.set()
        await soon(again)
        await soon(made.close())

    asyncio.run(work())


def test_chores_go_on_after_any_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(app_module, "SECONDS_BETWEEN_CHORES", 0.01)
    made, tries = service(tmp_path, log_lines=1), []
    made.open()
    snapshot = made._snapshot

    def fails(*arguments):
        tries.append(1)
        if len(tries) < 3:
            raise RuntimeError("boom")
        return snapshot()

    async def work():
        app = make_app(made)
        async with running(app):
            made._snapshot = fails
            await made.push("a", {"t": 0})
            for _ in range(500):
                if len(tries) >= 3 and not made.log.lines:
                    break
                await asyncio.sleep(0.01)
            text = (await call(app, "GET", "/metrics")).content.decode()
            assert 'neuralcde_chore_failures_total{chore="compact"} 2' in text.splitlines()
            assert made.log.lines == 0
            await made.push("a", {"t": 1})

    asyncio.run(work())
    assert last_time(tmp_path) == 1
    assert len(made.log.files()) == 1


def test_the_snapshot_keeps_times_of_pushes_as_numbers_and_is_private(tmp_path):
    """Metadata of a safetensors file is limited to 100 MB, which a million streams would exceed."""
    made = pushed(tmp_path, [("a", 0.0, {}), ("b", 0.0, {})], end=True)
    file = tmp_path / "streams.safetensors"
    with safe_open(file, "pt") as content:
        assert content.get_tensor("touched").tolist() == [made.touched["a"], made.touched["b"]]
        assert "touched" not in json.loads(content.metadata()["streams"])["notes"]
    for kept in (file, *made.log.files()):
        assert kept.stat().st_mode & 0o777 == 0o600


def test_streams_expire_in_slices(tmp_path):
    """Other requests are answered between the slices."""
    made, most = service(tmp_path, idle_hours=1.0), 0
    ids = [f"s{k}" for k in range(1000)]
    made.open()
    made.streams.push_many(ids, [0.0] * 1000, [[float("nan")] * 3] * 1000, predict=False)
    made.touched = dict.fromkeys(ids, 0.0)
    made._save(*made._snapshot())

    async def work():
        nonlocal most
        expiring, before = asyncio.create_task(made.expire()), 1000
        while not expiring.done():
            await asyncio.sleep(0)
            most, before = max(most, before - len(made.streams)), len(made.streams)
        assert await expiring == made.expired == 1000
        made.log.close()

    asyncio.run(work())
    assert 0 < most <= 200
    again = service(tmp_path)
    again.open()
    assert "s0" not in again.streams
