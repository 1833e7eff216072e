# SPDX-License-Identifier: Apache-2.0
"""Jobs that begin or end in an unusual way: ranks that are killed, raise, exit, fork; signals; threads; no numpy.

usage: jobs_test.py KOLO_RUN [CASE...]
"""

import os
import signal
import subprocess
import sys
import textwrap
import time
import unittest

KOLO_RUN = sys.argv[1]
BEGIN = """
import os, sys, time, signal, threading
import kolopy as kolo
"""
NUMPY = BEGIN + "import numpy as np\n"


def command(code, *, begin=NUMPY, ranks=1):
    launcher = [KOLO_RUN, "-np", str(ranks)] if ranks > 1 else []
    return [*launcher, sys.executable, "-c", begin + textwrap.dedent(code)]


def job(code, *, begin=NUMPY, ranks=1, status=0, **variables):
    """What the job writes; it must end with that status, or with any other than 0 (None)."""
    done = subprocess.run(
        command(code, begin=begin, ranks=ranks),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **variables},
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == status if status is not None else done.returncode != 0, f"{done.returncode}: {text}"
    return text


class Deaths(unittest.TestCase):
    def test_a_killed_rank_is_named(self):
        text = job(
            """
            kolo.init()
            try:
                kolo.barrier()
                if kolo.rank() == 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                kolo.allreduce(np.ones(1000))
            except kolo.RankLostError as error:
                assert error.code == kolo.Status.RANK_LOST and error.ends_job
                print(f"rank {kolo.rank()}: {error}", flush=True)
            try:
                kolo.allreduce_async(np.ones(1000), name="later").wait()
            except kolo.RankLostError:
                print("again", flush=True)
            """,
            ranks=3,
            status=None,
        )
        for rank in (0, 2):
            self.assertRegex(text, rf"rank {rank}: .*rank 1 was lost")
        self.assertEqual(text.count("again"), 2, text)

    def test_an_exception_that_leaves_a_session_tells_the_others(self):
        text = job(
            """
            try:
                with kolo.Session():
                    if kolo.rank() == 0:
                        raise ValueError("the disk is full")
                    kolo.allreduce(np.ones(3))
            except kolo.UserExceptionError as error:
                assert kolo.rank is not None and "ValueError: the disk is full" in str(error), error
                print("told", flush=True)
            except ValueError:
                print("raised", flush=True)
            assert not kolo.is_initialized()
            """,
            ranks=3,
        )
        self.assertEqual((text.count("told"), text.count("raised")), (2, 1), text)

    def test_a_reason_that_utf_8_has_no_bytes_for_reaches_the_others(self):
        text = job(
            """
            try:
                with kolo.Session():
                    if kolo.rank() == 0:
                        raise FileNotFoundError(chr(0xDCFF) + "lost" + chr(0))
                    kolo.allreduce(np.ones(3))
            except kolo.UserExceptionError as error:
                print("told", r"FileNotFoundError: \\udcfflost" in str(error), flush=True)
            except FileNotFoundError:
                print("raised", flush=True)
            """,
            ranks=2,
        )
        self.assertEqual((text.count("told True"), text.count("raised")), (1, 1), text)

    def test_an_exception_that_ends_the_program_tells_the_others(self):
        text = job(
            """
            kolo.init()
            if kolo.rank() == 0:
                raise ValueError("no data")
            try:
                kolo.barrier()
            except kolo.UserExceptionError as error:
                print("told", "ValueError: no data" in str(error), flush=True)
            """,
            ranks=2,
            status=None,
        )
        self.assertIn("told True", text)

    def test_a_program_that_exits(self):
        text = job(
            """
            with kolo.Session():
                try:
                    kolo.barrier()
                    if kolo.rank() == 1:
                        sys.exit(3)
                    kolo.barrier()
                except kolo.UserExceptionError as error:
                    assert "SystemExit: 3" in str(error), error
                    print("told", flush=True)
            """,
            ranks=2,
            status=3,
        )
        self.assertIn("told", text)

    def test_a_program_that_forgets_to_leave(self):
        """Its arrays are used until it has left, and its log sink is called."""
        text = job(
            """
            records = []
            kolo.init(log_level="debug", log=lambda *record: records.append(record))
            kept = [kolo.allreduce_async(np.ones(1 << 20), name=str(i)) for i in range(4)]
            for i in range(4):
                kolo.allreduce_async(np.ones(1 << 20), name=f"dropped {i}")
            print("end", kolo.rank(), len(records) > 0, flush=True)
            """,
            ranks=3,
        )
        self.assertEqual(text.count("end"), 3, text)
        self.assertIn("True", text)  # a rank may have nothing to say


class Signals(unittest.TestCase):
    def interrupt(self, code):
        process = subprocess.Popen(command(code), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        first = process.stdout.readline()
        self.assertEqual(first, "waits\n", first)
        time.sleep(0.2)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=100)[0]
        return process.returncode, text, time.monotonic() - begun

    def test_ctrl_c_ends_a_wait(self):
        for wait in (
            "kolo.recv(data, 0)",
            "kolo.recv_async(data, 0).wait()",
            "kolo.recv_async(data, 0).wait_for(100)",
            "kolo.sendrecv(np.ones(1), 0, data, 0, recv_tag=3)",
        ):
            with self.subTest(wait):
                status, text, _ = self.interrupt(f"""
                    kolo.init(timeout_s=200)
                    data = np.zeros(1000)
                    print("waits", flush=True)
                    try:
                        {wait}
                    except KeyboardInterrupt:
                        print("interrupted", flush=True)
                    del data
                    data = np.zeros(1000)
                    kolo.send(np.ones(1000), 0, 3)   # the receive is still there, and so is its memory
                    assert kolo.allreduce(2) == 2 and (data == 0).all()
                    kolo.shutdown()
                    """)
                self.assertEqual((status, text), (0, "interrupted\n"), text)

    def test_ctrl_c_in_every_call_for_which_the_other_rank_never_comes(self):
        text = job(
            """
            kolo.init(timeout_s=200)
            kolo.barrier()
            if kolo.rank() == 1:
                try:
                    kolo.recv(np.ones(1), 0)
                except kolo.UserExceptionError as error:
                    print("told", str(error), flush=True)
                kolo.shutdown()
                sys.exit()
            x = np.ones(64)
            prepared = kolo.prepare(kolo.Call.allreduce(x), name="prepared")
            for name, call in {
                "allreduce": lambda: kolo.allreduce(x.copy()),
                "by name": lambda: kolo.allreduce(x.copy(), name="named"),
                "reduce": lambda: kolo.reduce(x.copy(), 0),
                "broadcast": lambda: kolo.broadcast(x.copy(), 1),
                "allgather": lambda: kolo.allgather(x),
                "gather": lambda: kolo.gather(x, 0),
                "alltoall": lambda: kolo.alltoall(x),
                "reduce_scatter": lambda: kolo.reduce_scatter(x),
                "barrier": kolo.barrier,
                "grouped": lambda: kolo.grouped([kolo.Call.allreduce(x.copy())], name="grouped"),
                "prepared": prepared.run,
                "wait_all": lambda: kolo.wait_all([kolo.allreduce_async(x.copy()), kolo.barrier_async()]),
                "broadcast_object": lambda: kolo.broadcast_object(None, 1),
                "recv": lambda: kolo.recv(x.copy(), 1),
                "join": kolo.join,
            }.items():
                timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
                timer.start()
                try:
                    call()
                    print("returned from", name, flush=True)
                except KeyboardInterrupt:
                    print("interrupted:", name, flush=True)
                timer.join()
            kolo.abandon("the user has had enough")
            kolo.shutdown()
            """,
            ranks=2,
        )
        self.assertEqual((text.count("interrupted:"), text.count("returned")), (15, 0), text)
        self.assertRegex(text, "told .*the user has had enough")

    def test_ctrl_c_at_the_launcher_ends_ranks_that_wait(self):
        """Each rank waits for a call that the other never makes."""
        process = subprocess.Popen(
            command(
                """
                with kolo.Session(timeout_s=200):
                    try:
                        print("waits", flush=True)
                        kolo.allreduce(np.ones(10), name=f"of {kolo.rank()}")
                    except KeyboardInterrupt:
                        print("interrupted", flush=True)
                        raise
                """,
                ranks=2,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.assertEqual([process.stdout.readline() for _ in range(2)], ["waits\n", "waits\n"])
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate(timeout=100)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("interrupted\n", text)  # a rank may hear of the other's end first
        self.assertIn("KeyboardInterrupt", errors)

    def test_ctrl_c_between_any_two_steps(self):
        """Many of them, beside short calls: nothing is freed twice, or too early."""
        text = job("""
            def interrupt(_signal, frame):   # only inside the package, which the loop below is prepared for
                while frame is not None:
                    if os.path.basename(os.path.dirname(frame.f_code.co_filename)) == "kolopy":
                        raise KeyboardInterrupt
                    frame = frame.f_back
            kolo.init()
            signal.signal(signal.SIGINT, interrupt)
            main = threading.main_thread().ident
            stop = False
            def interrupts():
                while not stop:
                    signal.pthread_kill(main, signal.SIGINT)
                    time.sleep(0.0003)
            calls = caught = 0
            thread = threading.Thread(target=interrupts)
            end = time.monotonic() + 3
            thread.start()
            while time.monotonic() < end:
                try:
                    while time.monotonic() < end:
                        kolo.allreduce(np.ones(50))
                        kolo.allreduce_async(np.ones(50)).wait()
                        kolo.allgather(np.ones(50))
                        kolo.recv_async(np.ones(50), 0)
                        kolo.send(np.ones(50), 0)
                        calls += 1
                except KeyboardInterrupt:
                    caught += 1
                except kolo.Error as error:
                    print(error)
            stop = True
            thread.join()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print("survived", calls > 10, caught > 10, flush=True)
            kolo.shutdown()
            """)
        self.assertIn("survived True True", text)

    def test_ctrl_c_while_objects_are_awaited(self):
        text = job(
            """
            with kolo.Session():
                kolo.barrier()
                if kolo.rank() == 0:
                    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                    try:
                        kolo.broadcast_object(None, 1)
                    except KeyboardInterrupt:
                        print("interrupted", flush=True)
                        kolo.allreduce(1, name="go")
                else:
                    kolo.allreduce(1, name="go")
                    kolo.broadcast_object("late", 1)
                kolo.barrier(name="both have it")
            """,
            ranks=2,
        )
        self.assertIn("interrupted", text)
        text = job(
            """
            try:
                with kolo.Session():
                    kolo.barrier()
                    if kolo.rank() == 0:
                        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                        kolo.broadcast_object(None, 1)
                    kolo.barrier(name="never")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            except kolo.UserExceptionError as error:
                print("told", "KeyboardInterrupt" in str(error), flush=True)
            """,
            ranks=2,
        )
        self.assertIn("interrupted\n", text)
        self.assertIn("told True", text)


class Processes(unittest.TestCase):
    def test_forks(self):
        text = job(
            """
            import multiprocessing
            def child(queue):
                try:
                    kolo.allreduce(np.ones(3))
                except kolo.UnsupportedError as error:
                    queue.put("fork" in str(error))
            kolo.init()
            total = kolo.allgather(np.full(1000, kolo.rank()))
            open_one = kolo.recv_async(np.ones(3), kolo.rank(), 5)
            queue = multiprocessing.get_context("fork").Queue()
            process = multiprocessing.get_context("fork").Process(target=child, args=(queue,))
            process.start()
            assert queue.get() is True
            process.join()
            assert process.exitcode == 0
            pid = os.fork()
            if pid == 0:
                del total
                for call in (open_one.wait, kolo.rank, kolo.shutdown, kolo.init):
                    try:
                        call()
                    except kolo.UnsupportedError:
                        continue
                    os._exit(9) if call is not kolo.rank else None   # the rank is known already
                sys.exit(7)   # runs what is registered for the exit
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            kolo.send(np.ones(3), kolo.rank(), 5)
            open_one.wait()
            assert kolo.allreduce(1) == 2 and len(total) == 2000
            kolo.shutdown()
            print("done", flush=True)
            """,
            ranks=2,
        )
        self.assertEqual(text.count("done"), 2, text)

    def test_processes_that_meet_in_a_store_of_their_own(self):
        text = job("""
            import multiprocessing
            class Store:
                def __init__(self, shared, changed):
                    self.shared, self.changed = shared, changed
                def set(self, key, value):
                    with self.changed:
                        self.shared[key] = value
                        self.changed.notify_all()
                def get(self, key, seconds):
                    with self.changed:
                        self.changed.wait_for(lambda: key in self.shared, seconds)
                        return self.shared.get(key)
            def rank_of_job(rank, size, shared, changed):
                records = []
                with kolo.Session(store=Store(shared, changed), rank=rank, size=size, log_level="info",
                                  log=lambda *record: records.append(record)) as context:
                    assert (context.rank, context.size) == (rank, size)
                    assert kolo.allreduce(rank + 1) == 6
                assert (records or rank > 0) and all(level in ("info", "warning") for level, _, _, _ in records)
                assert all(seconds > 1e9 for _, _, seconds, _ in records)
                kolo.init(alone=True)   # and not shut down: the end of the process does
            if __name__ == "__main__":
                fork = multiprocessing.get_context("fork")
                with fork.Manager() as manager:
                    shared, changed = manager.dict(), manager.Condition()
                    ranks = [fork.Process(target=rank_of_job, args=(r, 3, shared, changed)) for r in range(3)]
                    for one in ranks: one.start()
                    for one in ranks: one.join()
                    print([one.exitcode for one in ranks])
            """)
        self.assertIn("[0, 0, 0]", text)

    def test_what_a_store_raises_is_the_cause(self):
        text = job("""
            class Store:
                def set(self, key, value): raise OSError("no route")
                def get(self, key, seconds): return None if self.mine == 0 else b"x" * 100000
            Store.mine = 0
            try:
                kolo.init(store=Store(), rank=0, size=2)
            except kolo.UserExceptionError as error:
                print(error, "|", repr(error.__cause__))
            Store.mine = 1
            try:
                kolo.init(store=Store(), rank=1, size=2)
            except kolo.UserExceptionError as error:
                print(repr(error.__cause__))
            """)
        self.assertIn("the store's `set` has returned user_exception | OSError('no route')", text)
        self.assertIn("has 100000 bytes, more than 65536", text)

    def test_a_daemon_thread_that_waits_at_the_end(self):
        text = job("""
            kolo.init()
            data = np.zeros(10)
            def wait():
                try:
                    kolo.recv(data, 0)
                except kolo.ShutDownError:
                    pass
            threading.Thread(target=wait, daemon=True).start()
            time.sleep(0.2)
            print("ends", flush=True)
            """)
        self.assertEqual(text, "ends\n")

    def test_ranks_as_threads(self):
        text = job("""
            def body(base):
                with kolo.Session() as context:   # the rank's
                    group = kolo.world().split(0)
                    total = np.full(100, base + kolo.rank())
                    kolo.allreduce(total, group=group)
                return context.size, int(total[0])
            assert kolo.run_local(4, body, 10) == [(4, 46)] * 4
            def fails(_):
                if kolo.rank() == 2:
                    raise KeyError("lost")
                kolo.barrier()
            try:
                kolo.run_local(3, fails, 0, timeout_s=60)
            except KeyError as error:
                print("raised", error)
            try:
                kolo.run_local(0, fails, 0)
            except kolo.InvalidArgumentError as error:
                print("refused")
            def shuts_down():
                try:
                    kolo.shutdown()
                except kolo.InvalidArgumentError as error:
                    return "whoever made it ends it" in str(error)
            assert kolo.run_local(1, shuts_down) == [True]
            assert not kolo.is_initialized()
            """)
        self.assertEqual(text.split("\n")[:2], ["raised 'lost'", "refused"])

    def test_one_after_another(self):
        job(
            """
            for i in range(3):
                with kolo.Session() as context:
                    world = kolo.world()
                    assert kolo.allreduce(1) == 2
                try:
                    kolo.allreduce(1, group=world)
                    raise AssertionError
                except kolo.NotInitializedError:
                    pass
            """,
            ranks=2,
        )


class WithoutNumpy(unittest.TestCase):
    def test_buffers(self):
        text = job(
            """
            import array
            with kolo.Session():
                rank, size = kolo.rank(), kolo.size()
                numbers = array.array("f", [rank, 2.5])
                kolo.allreduce(numbers)
                assert list(numbers) == [1, 5], numbers
                all_of = kolo.allgather(array.array("i", [rank] * 3))
                assert isinstance(all_of, memoryview) and all_of.tolist() == [0, 0, 0, 1, 1, 1]
                assert kolo.allgather(b"ab").tobytes() == b"abab"
                assert kolo.allgather(array.array("d")).tolist() == []
                assert kolo.allgather(memoryview(array.array("h", [1, 2, 3, 4]))[::2]).tolist() == [1, 3, 1, 3]
                assert kolo.allgather(memoryview(bytearray(4)).cast("B", (2, 2))).shape == (4, 2)
                assert kolo.allreduce(0.5, "max") == 0.5 and kolo.allreduce(True, "min") is True
                rows, splits = kolo.alltoall(array.array("q", [rank, rank + 10]))
                assert rows.tolist() == [10 * rank, 10 * rank + 1] and splits == [1, 1], rows.tolist()
                assert kolo.broadcast_object({"epoch": 3}) == {"epoch": 3}
                arena = kolo.GradientArena.like({"w": numbers})
                arena.tensors["w"][0] = 2.0
                kolo.allreduce(arena.tensors["w"])
                assert arena.tensors["w"].tolist() == [4.0, 0.0]
                try:
                    kolo.allreduce(memoryview(bytearray(6))[::2])
                except kolo.InvalidArgumentError as error:
                    assert str(error).endswith("which takes numpy to write to: give a contiguous one")
                assert "numpy" not in sys.modules or sys.modules["numpy"] is None
            print("done", flush=True)
            """,
            begin="import sys\nsys.modules['numpy'] = None\n" + BEGIN,
            ranks=2,
        )
        self.assertEqual(text, "done\ndone\n")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background inherits that it is ignored
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
