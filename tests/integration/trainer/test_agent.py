"""The launcher with real processes: replaced, drained, given up, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.integration.trainer.job import wait_for
from tests.integration.trainer.launcher import Launcher, time_replacement
from trainer_runtime.agent import agent as codes


def script(folder: Path, text: str) -> tuple[str, ...]:
    path = folder / "script.py"
    path.write_text(text)
    return (str(path),)


def test_a_killed_rank_is_replaced_from_a_standby(tmp_path: Path) -> None:
    with Launcher(tmp_path, "--nproc-per-node", "2", "--rdzv-id", "j") as run:
        run.wait_world(2)
        took = time_replacement(run, run.rank_pids(2)[0], 2)
        assert "lost (SIGKILL)" in run.said()
        assert "(standby, " in run.said()
        assert took["takeover_s"] < 0.1
        assert "job j: epoch" in run.said()
        run.process.terminate()
        assert run.wait() == codes.OK
        run.wait_nothing_left()


def test_a_warm_standby_runs_the_script_up_to_its_join(tmp_path: Path) -> None:
    text = (
        "import os, runpy, sys\n"
        "from trainer_runtime.agent.parking import wait_if_parked\n"
        "at = wait_if_parked()\n"
        "print('woken' if at else 'first', os.environ['CONCERTINA_REPLICA'], flush=True)\n"
        "open(sys.argv[1]).read()\n"  # a FIFO: blocks until the test ends
    )
    fifo = tmp_path / "block"
    os.mkfifo(fifo)
    with Launcher(
        tmp_path, "--warm-script", "--preload", "json", script=(*script(tmp_path, text), str(fifo))
    ) as run:
        run.wait_said("first ")
        run.wait_said("parked: warm")
        assert "woken" not in run.said()
        os.kill(run.rank_pids(1)[0], signal.SIGKILL)
        run.wait_said(r"takes its place \(warm standby")
        run.wait_said("woken ")


def test_sigkill_of_the_agent_leaves_no_process(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print('up', flush=True)\n"
        "child.wait()\n"
    )
    with Launcher(
        tmp_path, "--nproc-per-node", "2", "--preload", "json", script=script(tmp_path, text)
    ) as run:
        run.wait_said("up", 2)
        # agent, nursery, authority, two ranks with a child each, a standby
        wait_for("all up", lambda: len(run.pids()) == 8)
        run.process.kill()
        run.wait_nothing_left()


def test_the_nursery_killed_disturbs_nobody(tmp_path: Path) -> None:
    text = "import signal\nprint('up')\nsignal.pause()\n"
    with Launcher(tmp_path, "--preload", "json", script=script(tmp_path, text)) as run:
        run.wait_said("up")
        rank = run.rank_pids(1)[0]
        # All have the nursery's command line; it is the one whose group is its own.
        nursery = next(
            pid for pid in run.pids()
            if b"agent.nursery" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and os.getpgid(pid) == pid
        )  # fmt: skip
        os.kill(nursery, signal.SIGKILL)
        run.wait_said("the nursery ended: started again")
        assert Path(f"/proc/{rank}").exists()
        os.kill(rank, signal.SIGKILL)
        run.wait_said("takes its place")
        run.wait_said("up", 2)


def test_the_authority_killed_is_started_again_at_its_port(tmp_path: Path) -> None:
    with Launcher(tmp_path, "--nproc-per-node", "2", "--standbys", "0") as run:
        step = run.wait_world(2)
        port = run.wait_said(r"listening on 127.0.0.1:(\d+)")[1]
        pids = set(run.pids()) - set(run.rank_pids(2)) - {run.process.pid}
        authority = next(pid for pid in pids if os.getpgid(pid) != pid)
        os.kill(authority, signal.SIGKILL)
        assert run.wait_said(r"listening on 127.0.0.1:(\d+)", 2)[1] == port
        run.wait_world(2, beyond=step + 50)
        assert "takes its place" not in run.said()


def test_a_stopped_rank_is_given_up_killed_and_replaced(tmp_path: Path) -> None:
    with Launcher(tmp_path, "--nproc-per-node", "2") as run:
        step = run.wait_world(2)
        rank = run.rank_pids(2)[0]
        os.kill(rank, signal.SIGSTOP)
        run.wait_said(r"lost \(given up by the authority: replica_hung\)")
        run.wait_world(2, beyond=step)
        wait_for("the stopped one is gone", lambda: not Path(f"/proc/{rank}").exists())


def test_the_authority_s_name_is_waited_for(tmp_path: Path) -> None:
    with Launcher(
        tmp_path, "--authority", "nobody.invalid:29400", "--dns-timeout", "0.3",
        "--preload", "json", script=script(tmp_path, ""),
    ) as run:  # fmt: skip
        assert run.wait() == codes.UNAVAILABLE
        assert "waits for the name of the authority" in run.said()
        assert "nobody.invalid:29400: no such host" in run.said().splitlines()[-1]


def test_too_many_failures_end_the_agent_with_the_reason(tmp_path: Path) -> None:
    error_file = tmp_path / "error.json"
    with Launcher(
        tmp_path, "--max-restarts", "2", "--error-file", str(error_file), "--preload", "json",
        script=script(tmp_path, "raise ValueError('no luck')\n"),
    ) as run:  # fmt: skip
        assert run.wait() == codes.GAVE_UP
        last = run.said().splitlines()[-1]
        assert last.startswith("[agent] gave up (exit code 70): replica 0 failed 3 times in 300 s")
        said = json.loads(error_file.read_text())["message"]
        assert said["message"] in last
        assert said["extraInfo"]["rank_exit_code"] == 1
        assert said["extraInfo"]["error"]["message"] == "ValueError: no luck"
        run.wait_nothing_left()


def test_sigterm_to_a_script_that_does_not_drain_is_said(tmp_path: Path) -> None:
    text = (
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()\n"
    )
    with Launcher(
        tmp_path, "--grace", "0.3", "--preload", "json", script=script(tmp_path, text)
    ) as run:
        run.wait_said("up")
        run.process.terminate()
        assert run.wait() == codes.TERMINATED
        assert "hasn't left in time: killed" in run.said()


def test_a_second_sigterm_hurries(tmp_path: Path) -> None:
    text = "import signal\nsignal.signal(15, signal.SIG_IGN)\nprint('up')\nsignal.pause()\n"
    with Launcher(
        tmp_path, "--grace", "600", "--preload", "json", script=script(tmp_path, text)
    ) as run:
        run.wait_said("up")
        run.process.terminate()
        run.wait_said("asked to end")
        run.process.terminate()
        assert run.wait() == codes.TERMINATED


def test_an_inner_group_has_torchrun_s_environment_and_dies_whole(tmp_path: Path) -> None:
    text = (
        "import os, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'TORCHELASTIC_RESTART_COUNT']\n"
        "print('env', *[os.environ[n] for n in names], flush=True)\n"
        "dist.barrier()\n"
        "while os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': dist.barrier()\n"
    )
    with Launcher(
        tmp_path, "--replicas", "1", "--ranks-per-replica", "2", script=script(tmp_path, text)
    ) as run:
        run.wait_said("env 0 0 2 0")
        run.wait_said("env 1 1 2 0")
        os.kill(run.rank_pids(2)[1], signal.SIGKILL)
        run.wait_said("env 0 0 2 1")
        run.wait_said("env 1 1 2 1")
        assert run.wait() == codes.OK


def test_what_to_preload_is_missing(tmp_path: Path) -> None:
    with Launcher(tmp_path, "--preload", "no_such_module", script=script(tmp_path, "")) as run:
        assert run.wait() == codes.MISCONFIGURED
        assert "--preload no_such_module" in run.said().splitlines()[-1]


def test_logs_are_whole_lines_on_the_console_and_in_files(tmp_path: Path) -> None:
    text = (
        "import os, sys\n"
        "for n in range(300): os.write(1, b'ab'); os.write(1, b'cd %d\\n' % n)\n"
        "sys.stderr.write('no newline')\n"
    )
    with Launcher(
        tmp_path, "--nproc-per-node", "2", "--log-dir", str(tmp_path / "logs"), "--standbys", "0",
        "--preload", "json", script=script(tmp_path, text),
    ) as run:  # fmt: skip
        assert run.wait() == codes.OK
        want = [f"abcd {n}" for n in range(300)]
        for slot in (0, 1):
            prefix = f"[{slot}:0] "
            lines = [x[len(prefix) :] for x in run.said().splitlines() if x.startswith(prefix)]
            assert [line for line in lines if line != "no newline"] == want
            assert "no newline" in lines
        files = sorted((tmp_path / "logs").glob("*-[12]/0/stdout.log"))
        assert [f.read_text().splitlines() for f in files] == [want, want]
