"""Files that nobody here wrote, by excerpts of the same form with other numbers: the documented commands read them."""

import gzip
import json
import re
import shlex

import numpy as np
import pytest
from commands import ibcb_command
from documents import ROOT

import ibcb

PAGE = ROOT / "docs" / "howto" / "read-logs.md"
COMMANDS = [shlex.split(line) for line in re.findall(r"^    ibcb (.*)$", PAGE.read_text(), re.M)]
STEPS = 240


def packed(path, lines):
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")


def mode_canada(rng):
    """As R writes it: a row number without a name, then a row per journey and alternative."""
    lines = [",case,alt,choice,dist,cost,ivt,ovt,freq,income,urban,noalt"]
    for case in range(STEPS):
        chosen = rng.integers(3)
        for place, alt in enumerate(("train", "air", "car")):
            numbers = rng.uniform(1, 90, size=4).round(2)
            values = [len(lines), case, alt, int(place == chosen), 83, *numbers, 45, 0, 3]
            lines.append(",".join(map(str, values)))
    return lines


def electricity(rng):
    lines = ['"choice","id","alt","pf","cl","loc","wk","tod","seas","chid"']
    for case in range(STEPS):
        chosen = rng.integers(4)
        for alt in range(4):
            numbers = rng.integers(0, 9, size=6)
            lines.append(",".join(map(str, [str(alt == chosen).upper(), case // 12, alt + 1, *numbers, case])))
    return lines


def swissmetro(rng):
    """Numbers from 1 for the choice, 0 where it is not known; headway of a car and seats of a train do not exist."""
    lines = [
        "GROUP,ID,AGE,TRAIN_AV,CAR_AV,SM_AV,TRAIN_TT,TRAIN_CO,TRAIN_HE,SM_TT,SM_CO,SM_HE,SM_SEATS,CAR_TT,CAR_CO,CHOICE"
    ]
    for case in range(STEPS):
        car = rng.integers(2)
        choice = 0 if case % 80 == 7 else rng.choice([1, 2, 3][: 2 + car])
        values = [
            2,
            case // 9,
            3,
            1,
            car,
            1,
            *rng.integers(1, 200, size=6),
            rng.integers(2),
            *rng.integers(1, 200, size=2),
        ]
        lines.append(",".join(map(str, [*values, choice])))
    return lines


def heating(rng):
    names = ["gc", "gr", "ec", "er", "hp"]
    columns = [f'"{what}.{name}"' for what in ("ic", "oc") for name in names]
    lines = [",".join(['"idcase"', '"depvar"', *columns, '"income"', '"region"'])]
    for case in range(STEPS):
        numbers = rng.uniform(100, 900, size=10).round(2)
        lines.append(",".join(map(str, [case, f'"{rng.choice(names)}"', *numbers, 7, '"scostl"'])))
    return lines


def trains(rng):
    lines = ['"id","choiceid","choice","price1","time1","change1","comfort1","price2","time2","change2","comfort2"']
    for case in range(STEPS):
        values = [case // 10, case % 10, f'"choice{rng.integers(1, 3)}"', *rng.integers(0, 4000, size=8)]
        lines.append(",".join(map(str, values)))
    return lines


def cars(rng):
    numbered = [f"{name}{place}" for name in ("type", "fuel", "price", "range") for place in range(1, 7)]
    lines = [",".join(["rownames", "choice", "college", "hsg2", "coml5", *numbered])]
    for case in range(STEPS):
        kinds = [*rng.choice(["van", "truck"], size=6), *rng.choice(["cng", "gasoline"], size=6)]
        values = [case, f"choice{rng.integers(1, 7)}", 0, 1, 0, *kinds, *rng.integers(1, 500, size=12)]
        lines.append(",".join(map(str, values)))
    return lines


def shop(rng):
    """German dates and numbers, an x at the choice; a row exported twice, and a request that nobody answered."""
    lines = ["request_id;timestamp;shown;price;stars"]
    for case in range(STEPS):
        time = f"{1 + case // 60:02}.03.2024 {case % 60 // 3:02}:{case % 3:02}"
        chosen = -1 if case == 50 else rng.integers(3)
        for place in range(3):
            price = f"{rng.uniform(1, 9):.3f}".replace(".", ",")
            mark = "x" if place == chosen else ""
            lines.append(f"r{case:03};{time};{mark};{price};{rng.integers(1, 6)}")
            if case == 20:
                lines.append(lines[-1])
    return [line.replace("shown", "chosen", 1) for line in lines]


def impressions(rng):
    lines = ["timestamp,request_id,item_id,picked,clicked"]
    for case in range(STEPS):
        shown = rng.choice(9, size=3, replace=False)
        for place, item in enumerate(shown):
            time = f"2024-03-{1 + case // 60:02} 10:{case % 60:02}:00"
            lines.append(f"{time},r{case},{item},{['ja', 'nein'][place > 0]},0")
    return lines


def shown(rng):
    """The probability stands at the chosen candidate alone."""
    lines = ["request_id,picked,price,p"]
    for case in range(STEPS):
        draws = rng.dirichlet(np.ones(3))
        chosen = rng.choice(3, p=draws)
        for place in range(3):
            p = f"{draws[place]:.4f}" if place == chosen else ""
            lines.append(f"r{case},{int(place == chosen)},{rng.uniform():.3f},{p}")
    return lines


def open_bandit(folder, rng):
    folder.mkdir(parents=True)
    items = [f"{i},{i},{rng.normal():.3f},{'ab'[i % 2]}" for i in range(5)]
    (folder / "item_context.csv").write_text("\n".join([",item_id,item_feature_0,item_feature_1", *items]))
    header = ["", "timestamp", "item_id", "position", "click", "propensity_score", "user_feature_0"]
    lines = [",".join([*header, *(f"user-item_affinity_{i}" for i in range(5))])]
    for case in range(STEPS):
        time = f"2019-11-{24 + case // 60} 00:{case % 60:02}:03.979311+00:00"
        lines.append(",".join(map(str, [case, time, rng.integers(5), 1, 0, 0.2, "cef3", *rng.integers(0, 2, size=5)])))
    (folder / "men.csv").write_text("\n".join(lines))


def requests(rng):
    for case in range(STEPS):
        items = [
            {"id": int(i), "price": float(rng.uniform()), "shop": {"stars": int(rng.integers(5))}} for i in range(4)
        ]
        yield json.dumps({"request": f"r{case}", "user": {"age": 30}, "items": items, "chosen": int(rng.integers(4))})


def cb_adf(rng, steps=STEPS):
    for _ in range(steps):
        chosen = rng.integers(4)
        yield "shared |User user=Tom time_of_day=morning"
        for place, article in enumerate(("politics", "sports", "music", "food")):
            label = "0:0.0:0.25 " if place == chosen else ""
            yield f"{label}|Action article={article} words:{rng.uniform():.3f}"
        yield ""


def cb_test():
    """Ids of features as words, a space before the bar, and a block for testing, which has no label."""
    yield from ["shared | s_1 s_2", "0:1.0:0.5 | a_1 b_1 c_1", " | a_2 b_2 c_2", " | a_3 b_3 c_3", ""]
    yield from [" | b_1 c_1 d_1", "0:0.0:0.5 | b_2 c_2 d_2", "", " | a_1 b_1 c_1", " | a_3 b_3 c_3", ""]


def dsjson(rng, *, from_zero):
    """`a` ranks the actions from 1, or just lists them from 0."""
    for case in range(40):
        chosen = int(rng.integers(4))
        actions = [0, 1, 2, 3] if from_zero else [chosen + 1, *(i + 1 for i in range(4) if i != chosen)]
        multi = [{"Action": {"price": float(rng.uniform()), f"action={i}": 1}} for i in range(4)]
        line = {"_label_cost": 0, "_label_probability": 0.25, "_label_Action": chosen + 1, "_labelIndex": chosen}
        line |= {"o": [{"v": 1.0}], "Timestamp": f"2021-02-04T16:31:{case:02}.2460000Z", "EventId": f"e{case}"}
        line |= {"a": actions, "c": {"User": {"user=Tom": 1}, "_multi": multi}, "p": [0.25] * 4}
        yield json.dumps(line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("logs")
    tables = {"ModeCanada": mode_canada, "electricity": electricity, "swissmetro": swissmetro}
    tables |= {"heating_data": heating, "train_data": trains, "car": cars}
    for name, make in tables.items():
        packed(folder / f"{name}.csv.gz", make(rng))
    texts = {"shop.csv": shop(rng), "impressions.csv": impressions(rng), "requests.jsonl": requests(rng)}
    texts |= {"shown.csv": shown(rng)}
    texts |= {"items.csv": ["item_id,price", *(f"{i},{rng.uniform():.3f}" for i in range(9))]}
    texts |= {"cb_test.ldf": cb_test(), "cb_load.dat": cb_adf(rng), "export.out": cb_adf(rng)}
    texts |= {"dsjson_cb.json": dsjson(rng, from_zero=False), "igl.dsjson": dsjson(rng, from_zero=True)}
    for name, lines in texts.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "export").mkdir()
    (folder / "export" / "part-00000").write_text("\n".join(mode_canada(rng)) + "\n")
    open_bandit(folder / "obd" / "bts" / "men", rng)
    return folder


#: what each command must find: steps, features
FOUND = {
    "ModeCanada.csv.gz": (STEPS, ("alt=air", "alt=car", "alt=train", "dist", "cost", "ivt", "ovt", "freq")),
    "electricity.csv.gz": (STEPS, ("alt", "pf", "cl", "loc", "wk", "tod", "seas")),
    "shop.csv": (STEPS - 1, ("price", "stars")),
    "swissmetro.csv.gz": (
        STEPS - 3,
        ("alternative=CAR", "alternative=SM", "alternative=TRAIN", "TT", "CO", "HE", "SEATS"),
    ),
    "heating_data.csv.gz": (STEPS, ("ic", "oc")),
    "train_data.csv.gz": (STEPS, ("price", "time", "change", "comfort")),
    "car.csv.gz": (STEPS, ("type=truck", "type=van", "fuel=cng", "fuel=gasoline", "price", "range")),
    "impressions.csv": (STEPS, ("price",)),
    "obd/bts/men": (STEPS, ("item_feature_0", "item_feature_1=a", "item_feature_1=b", "user-item_affinity")),
    "shown.csv": (STEPS, ("price",)),
    "requests.jsonl": (STEPS, ("price", "shop.stars")),
    "cb_test.ldf": (2, ("a_1", "b_1", "c_1")),
    "cb_load.dat": (STEPS, ("Action^article=politics", "Action^words")),
    "dsjson_cb.json": (40, ("Action.price", "Action.action=0")),
    "igl.dsjson": (40, ("Action.price", "Action.action=0")),
    "export.out": (STEPS, ("Action^article=politics", "Action^words")),
    "export": (STEPS, ("alt=air", "alt=car", "alt=train", "dist", "cost", "ivt", "ovt", "freq")),
}


def test_every_command_of_the_page_is_run_here():
    assert {command[1] for command in COMMANDS} == set(FOUND)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_the_documented_command_reads_it(folder, tmp_path, monkeypatch, command):
    monkeypatch.chdir(folder)
    steps, names = FOUND[command[1]]
    # What validate thinks of numbers made up is beside the point; convert refuses what cannot be read.
    result = ibcb_command("convert", command[1], tmp_path / "log.parquet", *command[2:])
    assert result.exit_code == 0, result.output
    log = ibcb.read_log(tmp_path / "log.parquet")
    assert log.n_steps == steps
    assert log.feature_names[: len(names)] == names
    judged = ibcb_command(*command)
    assert "error: few" in judged.output or judged.exit_code == 0, judged.output
