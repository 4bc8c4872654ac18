"""How the times of several engine streams add up."""

from __future__ import annotations

from proxy.domain.answer_times import NOT_REPORTED, AnswerTimes

ONE = AnswerTimes(queue_s=3.0, prefill_s=1.0, decode_s=10.0)
OTHER = AnswerTimes(queue_s=4.0, prefill_s=2.0, decode_s=20.0)


def test_streams_one_after_another_add_up():
    both = ONE + OTHER
    assert both == AnswerTimes(queue_s=7.0, prefill_s=3.0, decode_s=30.0)
    assert AnswerTimes() + ONE == ONE


def test_choices_work_for_the_sum_and_wait_for_the_longest():
    both = AnswerTimes(queue_s=4.0, prefill_s=3.0, decode_s=30.0)
    assert ONE.beside(OTHER) == OTHER.beside(ONE) == both
    assert AnswerTimes().beside(ONE) == ONE


def test_a_sum_with_what_nobody_reported_is_not_known():
    assert ONE + NOT_REPORTED == NOT_REPORTED + ONE == NOT_REPORTED
    assert ONE.beside(NOT_REPORTED) == NOT_REPORTED.beside(ONE) == NOT_REPORTED
    silent = AnswerTimes(queue_s=None, prefill_s=1.0, decode_s=1.0)
    assert ONE + silent == AnswerTimes(queue_s=None, prefill_s=2.0, decode_s=11.0)
