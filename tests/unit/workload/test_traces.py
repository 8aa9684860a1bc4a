"""Reading traces: every format by its own column names, and a broken row by its number."""

import json

import pytest

from headway.errors import BadSetting
from headway.workload import read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,10,4
2024-05-10 00:00:01.509930+00:00,20,5
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
9,ChatGPT,100,0,100,Conversation log
45,GPT-4,1087,230,1317,API log
"""
NO_ANSWER_THEN_NO_TIME = """{"at_s": 1, "num_prompt": 1, "num_output": 0}
{"at_s": 2, "num_prompt": 1, "num_output": 2}
{"num_prompt": 1, "num_output": 2}
"""
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,10,2\n2.5,20,3\n"


def write(tmp_path, text, name="trace.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (AZURE, [(0.0, 374, 44), (4.314579, 396, 109)]),
        (AZURE_2024, [(0.0, 10, 4), (1.5, 20, 5)]),
        (BURSTGPT, [(0.0, 472, 18), (40.0, 1087, 230)]),
        (VIDUR, [(0.0, 10, 2), (1.0, 20, 3)]),
    ],
)
def test_published_csv_formats(tmp_path, text, rows):
    """Columns are known by their publishers' names; times count from the first row."""
    trace = read_trace(write(tmp_path, text))
    assert [(row.num_prompt, row.num_output) for row in trace.rows] == [row[1:] for row in rows]
    assert [row.at_s for row in trace.rows] == pytest.approx([row[0] for row in rows], abs=1e-6)


def test_mooncake_milliseconds_and_hash_ids(tmp_path):
    """Mooncake counts milliseconds and names shared blocks of 512 tokens."""
    lines = [
        {"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 3000, "input_length": 1030, "output_length": 6, "hash_ids": [0, 2, 3]},
    ]
    trace = read_trace(write(tmp_path, "\n".join(map(json.dumps, lines)), "m.jsonl"))
    assert [(row.at_s, row.prefix, row.prefix_block) for row in trace.rows] == [(0, (0, 1), 512), (3, (0, 2, 3), 512)]
    as_list = read_trace(write(tmp_path, json.dumps(lines), "m.json"))
    assert as_list.rows == trace.rows


def test_answers_without_tokens_are_left_out_and_counted(tmp_path):
    """A row without output is what the service failed to answer."""
    trace = read_trace(write(tmp_path, BURSTGPT))
    assert (len(trace.rows), trace.num_skipped) == (2, 1)


def test_turns_count_the_whole_history(tmp_path):
    """Where a trace tells only what is new, the prompt is everything said before and that."""
    trace = read_trace(
        write(tmp_path, "conversation,turn,new_input_tokens,output_tokens\n0,0,5,10\n1,0,7,1\n0,1,3,4\n")
    )
    assert [(row.session, row.turn, row.num_prompt) for row in trace.rows] == [("0", 0, 5), ("1", 0, 7), ("0", 1, 18)]
    assert trace.has_sessions
    assert not trace.has_times


def test_rows_of_no_session_do_not_go_on_from_each_other(tmp_path):
    """What is new is all there is, whether the column is empty or missing."""
    for text in (
        "conversation,new_input_tokens,output_tokens\n,5,10\na,6,1\n,7,1\na,1,1\n",
        "new_input_tokens,output_tokens\n5,10\n6,1\n7,1\n8,1\n",
    ):
        assert [row.num_prompt for row in read_trace(write(tmp_path, text)).rows] == [5, 6, 7, 8]


def test_rows_are_brought_into_the_order_of_time(tmp_path):
    """A trace that jumps back in time is sorted."""
    trace = read_trace(write(tmp_path, "arrival_s,input_tokens,output_tokens\n9,1,1\n3,2,2\n"))
    assert [(row.at_s, row.num_prompt) for row in trace.rows] == [(0, 2), (6, 1)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "timestamp_s,input_tokens,output_tokens\n0,1,2\n1,x,2\n",
            r"row 2: input_tokens is 'x'; it must be a whole number",
        ),
        ("timestamp_s,input_tokens,output_tokens\n0,1,-2\n", r"row 1: output_tokens is '-2'; .* from 0 to"),
        ("timestamp_s,input_tokens,output_tokens\n-1,1,2\n", r"row 1: timestamp_s is '-1'; it must be a time"),
        ("timestamp_s,input_tokens,output_tokens\nnan,1,2\n", r"row 1: timestamp_s is 'nan'"),
        ("timestamp_s,input_tokens,output_tokens\n1_5,1,2\n", r"row 1: timestamp_s is '1_5'"),
        ("timestamp_s,input_tokens,output_tokens\n0,1_000,2\n", r"row 1: input_tokens is '1_000'"),
        ("timestamp_s,input_tokens,output_tokens\n0,1,2\n1,3\n", r"row 2: it does not have the header's 3 columns"),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n",
            r"row 1: TIMESTAMP is 'yesterday'; .* date and time",
        ),
        ("a,b\n1,2\n", r"row 1: there is no column for num_prompt; known names: .*input_tokens"),
        (
            "client,t_start_s,rate_rps,cv,pattern,p1,p2\n5,0,3,1,Gamma,1,1\n",
            r"row 1: .*ServeGen's.*: \[servegen\] with",
        ),
        ('{"quantile_levels": [0, 1], "clients": {}}\n', r"row 1: .*ServeGen's.* \[servegen\] with rates and lengths"),
        ("input_tokens,output_tokens\n", "holds no requests"),
        ("", "holds no requests"),
        ('{"input_tokens": 1, "output_tokens": 2}\n{"input_tokens": \n', "row 2 is not JSON"),
        (
            '{"input_tokens": 1, "output_tokens": 2, "input_tokens": 3}\n',
            "row 1: the key 'input_tokens' is there twice",
        ),
        (
            '{"input_tokens": 1, "output_tokens": 2, "hash_ids": ["a"]}\n',
            r"row 1: hash_ids is \['a'\]; .* whole numbers",
        ),
        ('{"input_tokens": 1, "output_tokens": 2}\n[1]\n', "row 2: must be a JSON object, not list"),
        (
            '{"at_s": 1, "num_prompt": 1, "num_output": 2}\n{"num_prompt": 1, "num_output": 2}\n',
            "row 2: it has no time",
        ),
        (NO_ANSWER_THEN_NO_TIME, "row 3: it has no time"),
        ("[1]", "row 1: must be a JSON object"),
    ],
)
def test_a_broken_row_is_named(tmp_path, text, message):
    """The message says file, row, column, value and what is allowed."""
    with pytest.raises(BadSetting, match=message):
        read_trace(write(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path):
    """A missing file and one that is not text end in one line."""
    with pytest.raises(BadSetting, match="No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadSetting, match="cannot read trace"):
        read_trace(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    ("name", "num_rows", "num_skipped"),
    [
        ("azure2023_conv.csv", 19_366, 0),
        ("mooncake_conversation_first8000.jsonl", 8_000, 0),
        ("lmsys_arena_27clients_vtc.csv", 1_500, 0),
        pytest.param("sharegpt_8k_llama2_lengths.csv", 30_731, 0, marks=pytest.mark.slow),  # as the next one, longer
        pytest.param("arxiv_summarization_4k_llama2_lengths.csv", 28_257, 0, marks=pytest.mark.slow),
        ("sharegpt_smollm2_multiturn_lengths.csv", 21_152, 7),
    ],
)
def test_the_shared_traces(shared_data, name, num_rows, num_skipped):
    """Every shared trace is read to its last row."""
    trace = read_trace(shared_data / "traces" / name)
    assert (len(trace.rows), trace.num_skipped) == (num_rows, num_skipped)


def test_engine_logs_are_traces(shared_data):
    """A recorded run of another engine can be replayed."""
    trace = read_trace(shared_data / "gpu" / "vllm_RTX4090_Llama-3.1-8B_requests.csv")
    assert (len(trace.rows), trace.rows[1].num_prompt) == (300, 1034)
    assert trace.rows[1].at_s == pytest.approx(0.3479 - 0.0469)
