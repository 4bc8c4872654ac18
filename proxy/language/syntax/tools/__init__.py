"""Families of tool-call syntax: their parsers, and the syntax that guides enforce.

Their parsers have these bases: `call_objects` for JSON objects, `bare_calls` for calls without
marks, `section_calls` for marks around each call, `markup_calls` for XML-like elements.
"""
