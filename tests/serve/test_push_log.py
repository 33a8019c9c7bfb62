"""The log of the service: what is kept after an end, a kill, and failures of the disk."""

import asyncio

import pytest

pytest.importorskip("fastapi")

from asgi import run, running
from served import CLF, fitted, pushed, service

from neuralcde.serve import LogError, make_app


def test_streams_go_on_after_an_end_and_after_a_kill(tmp_path):
    rows = [(f"s{k % 3}", float(k), {"pulse": 60.0 + k}) for k in range(12)]
    first = pushed(tmp_path, rows[:5], end=True)
    assert first.log.lines == 0
    second = pushed(tmp_path, rows[5:8])
    third = pushed(tmp_path, rows[8:], log_lines=2)
    fourth = service(tmp_path)
    assert fourth.open() < 4
    whole = CLF.stream()
    for row in rows:
        whole.push(*row)
    assert fourth.streams.to_bytes() == whole.to_bytes() == third.streams.to_bytes() != second.streams.to_bytes()
    assert fourth.log.number == 12
    assert fourth.touched == pytest.approx(third.touched, abs=1e-2)


def test_an_incomplete_last_line_is_cut_off_and_a_damaged_one_is_named(tmp_path):
    pushed(tmp_path, [("a", 0.0, {}), ("a", 1.0, {})])
    (file,) = service(tmp_path).log.files()
    content = file.read_bytes()
    with file.open("ab") as log:
        log.write(content.splitlines(keepends=True)[-1][:-9])
    assert service(tmp_path).open() == 2
    assert file.read_bytes() == content
    file.write_bytes(content.replace(b'"a"', b'"b"', 1))
    with pytest.raises(LogError, match=r"log-0+, line 1: damaged"):
        service(tmp_path).open()
    file.write_bytes(content.splitlines(keepends=True)[1])
    with pytest.raises(LogError, match=r"line 1: damaged, or lines before it are missing"):
        service(tmp_path).open()


def test_streams_of_another_model_are_refused(tmp_path):
    pushed(tmp_path, [("a", 0.0, {})])
    with pytest.raises(ValueError, match="its states are those of another model"):
        service(tmp_path, fitted(pool="last")).open()


def test_a_row_is_acknowledged_when_it_is_on_the_disk(tmp_path, monkeypatch):
    """While the disk is busy no answer comes, and rows that arrive meanwhile are written together."""
    made, writes, free = service(tmp_path), [], asyncio.Event()
    made.open()
    write = made.log._write_now

    async def slow(function, *arguments):
        await free.wait()
        writes.append(arguments[0].count(b"\n"))
        return function(*arguments)

    async def work():
        monkeypatch.setattr(asyncio, "to_thread", slow)
        waiting = [asyncio.create_task(made.push(str(k), {"t": 0})) for k in range(5)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        again = asyncio.create_task(made.push("0", {"t": 0}))
        await asyncio.sleep(0)
        assert not again.done()
        free.set()
        await asyncio.gather(*waiting, again)

    asyncio.run(work())
    assert write == made.log._write_now
    assert sum(writes) == 5
    assert len(writes) <= 2


def test_a_repeated_row_waits_for_no_rows_after_it(tmp_path):
    """A row that comes again is answered although the log never rests."""
    made = service(tmp_path)

    async def work():
        made.open()
        await made.push("a", {"t": 0})
        stop = asyncio.Event()

        async def busy(id):
            for t in range(10_000):
                if stop.is_set():
                    break
                await made.push(id, {"t": t})

        loads = [asyncio.create_task(busy(str(k))) for k in range(3)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(made.push("a", {"t": 0}), 20)
        assert not any(load.done() for load in loads)
        stop.set()
        await asyncio.gather(*loads)
        made.log.close()

    asyncio.run(work())


def test_an_entry_that_is_not_json_leaves_no_gap(tmp_path):
    made = service(tmp_path)

    async def work():
        made.open()
        with pytest.raises(ValueError, match="JSON compliant"):
            made.log.append({"op": "push", "id": "a", "t": float("nan")})
        await made.push("a", {"t": 0})
        made.log.close()

    asyncio.run(work())
    assert service(tmp_path).open() == 1


def test_when_the_log_cannot_be_written_nothing_more_is_accepted(tmp_path):
    async def work(call):
        assert (await call("POST", "/streams/a", {"t": 0})).status == 200

        def fails(content):
            raise OSError("no space left")

        made.log._write_now = fails
        for _ in range(2):
            refused = await call("POST", "/streams/a", {"t": 1})
            assert refused.status == 503
            assert "the log cannot be written" in refused.json()["detail"]
        assert (await call("DELETE", "/streams/a")).status == 503
        assert (await call("GET", "/health")).status == 503
        assert (await call("GET", "/streams/a")).status == 200

    made = service(tmp_path)
    run(make_app(made), work)
    again = service(tmp_path)
    again.open()
    assert again.streams.last_time("a") == 0.0


def test_idle_streams_expire(tmp_path):
    made = service(tmp_path, idle_hours=2.0)

    async def work():
        async with running(make_app(made)):
            await made.push("old", {"t": 0})
            await made.push("new", {"t": 0})
            now = made.touched["new"]
            made.touched["old"] -= 7300
            assert await made.expire(now) == 1
            assert made.streams.ids == ["new"]
            assert await made.expire(now) == 0

    asyncio.run(work())
    again = service(tmp_path)
    again.open()
    assert again.streams.ids == ["new"]


def test_pushes_go_on_while_the_log_is_compacted(tmp_path):
    made = service(tmp_path)

    async def work():
        made.open()
        for k in range(30):
            pushes = [asyncio.create_task(made.push(str(j), {"t": k, "values": {"pulse": j}})) for j in range(5)]
            await asyncio.gather(made.compact() if k % 3 == 0 else asyncio.sleep(0), *pushes)
        made.log.close()

    asyncio.run(work())
    again = service(tmp_path)
    assert 0 < again.open() <= 15
    assert again.streams.to_bytes() == made.streams.to_bytes()
