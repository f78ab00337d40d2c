"""Signals end work that does not hear them, too."""

import _thread
import os
import signal
import subprocess
import sys
import threading

import pytest

from stages.interrupts import stoppable

pytestmark = pytest.mark.usefixtures("ctrl_c")


def interrupt(after=0.2):
    """Ctrl-C, a moment later."""
    threading.Timer(after, os.kill, [os.getpid(), signal.SIGINT]).start()


def test_what_a_call_returns_and_raises_is_its_own():
    assert stoppable(lambda stop: 3) == 3
    with pytest.raises(ZeroDivisionError):
        stoppable(lambda stop: 1 // 0)


@pytest.mark.timeout(60)
def test_a_signal_ends_the_call_and_is_raised_when_that_has_ended():
    ended = []

    def work(stop):
        stop.wait()
        ended.append(True)

    interrupt()
    with pytest.raises(KeyboardInterrupt):
        stoppable(work)
    assert ended == [True]


@pytest.mark.timeout(60)
def test_an_interruption_that_comes_without_a_signal_is_heard_too():
    threading.Timer(0.2, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        stoppable(lambda stop: stop.wait())


@pytest.mark.timeout(60)
def test_a_second_signal_is_not_waited_for():
    forever = threading.Event()

    def work(stop):
        stop.wait()
        interrupt()
        forever.wait()

    interrupt()
    with pytest.raises(KeyboardInterrupt):
        stoppable(work)
    forever.set()


CUT_SHORT = """
import signal
from stages.interrupts import Interruption, Terminated


class Loop:
    def __init__(self):
        signal.raise_signal(signal.SIGTERM)
        self.closed = False

    def __del__(self):
        self.closed


signal.signal(signal.SIGTERM, Interruption().handle)
try:
    Loop()
except Terminated:
    print("ended")
"""


def test_what_a_signal_cut_short_says_nothing_where_it_is_collected():
    run = subprocess.run([sys.executable, "-c", CUT_SHORT], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("ended\n", "")
