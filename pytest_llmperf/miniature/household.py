"""The household that the miniature lives in: its rooms, people, twelve tools, and requests.

It holds data and seeded generators only: no rendering, no tokens, no training and no measuring.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = [
    "REQUESTS",
    "ROUTER_SYSTEM_PROMPT",
    "TOOLS",
    "Request",
    "ToolRequest",
    "code_request",
    "json_request",
    "prose_request",
    "request_nonce",
    "routine_request",
    "tool_request",
]

# --- the world ---------------------------------------------------------------------------------

ASSISTANT = "Anton"
ROOMS = (
    "kitchen", "bedroom", "bathroom", "hallway", "office", "garage", "nursery", "attic",
    "cellar", "library", "workshop", "pantry", "terrace", "garden",
)  # fmt: skip
RESIDENTS = (
    "Ada", "Boris", "Carla", "David", "Emma", "Felix", "Greta", "Hugo", "Ines", "Jonas",
    "Kira", "Leo", "Mona", "Nils", "Olga", "Paul", "Rosa", "Sven", "Tara", "Victor",
)  # fmt: skip
CITIES = (
    "Paris", "Berlin", "Tokyo", "Oslo", "Madrid", "Lima", "Cairo", "Seoul", "Dublin", "Vienna",
    "Lisbon", "Prague", "Athens", "Toronto", "Boston", "Denver", "Nairobi", "Sydney",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DEVICES = (
    "lamp", "heater", "fan", "blinds", "speaker", "kettle", "oven", "dishwasher", "washer",
    "dryer", "charger", "projector", "purifier", "sprinkler", "fridge", "freezer",
)  # fmt: skip
ACTIONS = ("dim", "raise", "lower", "set", "warm", "cool", "limit", "ramp")
GROCERIES = (
    "milk", "bread", "butter", "cheese", "apples", "lemons", "rice", "coffee", "tea", "honey",
    "pasta", "tomatoes", "onions", "carrots", "yogurt", "flour", "eggs", "spinach", "salmon",
    "walnuts",
)  # fmt: skip
SHOPS = ("market", "bakery", "butcher", "grocer", "pharmacy", "dairy")
COLOURS = ("white", "amber", "red", "blue", "green", "violet", "orange", "pink")
HEATING_MODES = ("heat", "cool", "auto", "eco")
GENRES = ("jazz", "rock", "classical", "folk", "ambient", "disco", "opera", "techno", "blues")
SOURCES = ("radio", "playlist", "podcast", "vinyl")
DOORS = ("front", "back", "side", "cellar", "garage", "garden", "terrace", "patio")
CAMERAS = ("driveway", "porch", "garden", "garage", "nursery", "hallway", "gate", "pool")
SCREENS = ("tablet", "television", "phone", "projector")
TOPICS = (
    "budget", "dentist", "training", "birthday", "dinner", "school", "piano", "plumbing",
    "insurance", "holiday", "tennis", "choir",
)  # fmt: skip
CHORES = ("laundry", "pizza", "soup", "nap", "workout", "bread", "tea", "homework", "cake", "rice")
ROUTINES = (
    "sunrise", "breakfast", "cinema", "bedtime", "holiday", "party", "cleaning", "reading",
    "cooking", "storm", "weekend", "welcome",
)  # fmt: skip
NEWS = (
    "dinner is ready", "the parcel is here", "the taxi is waiting", "school ends early",
    "the meeting is moved", "the cake is cooling", "the guests are late", "the bath is warm",
)  # fmt: skip
PERIODS = ("today", "yesterday", "week", "month", "year")
METRICS = ("power", "cost", "usage", "runtime", "load", "heat")

# --- the tools ---------------------------------------------------------------------------------


def _text(description: str, *choices: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "description": description}
    return schema | {"enum": list(choices)} if choices else schema


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "description": description}


def _tool(name: str, description: str, /, **parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": parameters,
                "required": list(parameters),
            },
        },
    }


_STEP = {
    "type": "object",
    "properties": {
        "room": _text("Room of the device."),
        "device": _text("Device to move."),
        "action": _text("What it should do."),
        "value": _number("Target in percent."),
    },
}

TOOLS: list[dict[str, Any]] = [
    _tool(
        "set_light",
        "Set brightness and colour of the light in a room.",
        room=_text("Room of the light."),
        brightness=_number("0 for off to 100 for full."),
        color=_text("Colour of the light."),
    ),
    _tool(
        "set_thermostat",
        "Set the thermostat of a room from a given hour.",
        room=_text("Room of the thermostat."),
        temperature=_number("Target in celsius."),
        mode=_text("How to reach it.", *HEATING_MODES),
        hour=_number("Hour of the day."),
    ),
    _tool(
        "play_media",
        "Play music or speech on the speakers of a room.",
        genre=_text("Genre to play."),
        source=_text("Where it comes from.", *SOURCES),
        room=_text("Room of the speakers."),
        volume=_number("Volume in percent."),
    ),
    _tool(
        "add_to_shopping_list",
        "Add an item to the shared shopping list.",
        item=_text("Name of the item."),
        quantity=_number("How many are needed."),
        shop=_text("Shop to buy it in."),
        buyer=_text("Resident who buys it."),
    ),
    _tool(
        "start_timer",
        "Start a timer that rings in a room.",
        label=_text("What it is for."),
        minutes=_number("Length in minutes."),
        room=_text("Room to ring in."),
    ),
    _tool(
        "create_event",
        "Create an event in the family calendar with one guest.",
        title=_text("Title of the event."),
        attendee=_text("Resident to invite."),
        day=_text("Day of the week."),
        hour=_number("Hour of the day."),
        minutes=_number("Length in minutes."),
    ),
    _tool(
        "get_weather",
        "Get the weather forecast for a city on a day of this week.",
        city=_text("Name of the city."),
        day=_text("Day of the week."),
        unit=_text("Unit of the answer.", "celsius", "fahrenheit"),
    ),
    _tool(
        "set_lock",
        "Lock or unlock a door for a resident.",
        door=_text("Door to move."),
        action=_text("What to do.", "lock", "unlock"),
        resident=_text("Resident who asked."),
    ),
    _tool(
        "show_camera",
        "Show the live picture of a camera on a screen.",
        camera=_text("Camera to show."),
        screen=_text("Screen to use.", *SCREENS),
        minutes=_number("How long, in minutes."),
    ),
    _tool(
        "send_message",
        "Send a short message to a resident in another room.",
        recipient=_text("Resident who reads it."),
        text=_text("Text as it was said."),
        urgency=_text("How loud it is.", "low", "normal", "high"),
    ),
    _tool(
        "get_energy_report",
        "Report how much energy a device used in a period.",
        room=_text("Room of the device."),
        device=_text("Device to report."),
        period=_text("Period of the report."),
        unit=_text("Unit of the report.", "kilowatts", "euros"),
    ),
    _tool(
        "create_routine",
        "Create a named list of steps that run at an hour of a day.",
        name=_text("Name of the routine."),
        day=_text("Day of the week."),
        hour=_number("Hour of the day."),
        steps={"type": "array", "description": "Steps in order.", "items": _STEP},
    ),
]
"""The dozen tools of the assistant, in the shape that a chat request's ``tools`` takes."""

ROUTER_SYSTEM_PROMPT = """\
You are Anton, the assistant of a busy house. You are the router: every request of the household \
comes to you first, and you decide which one of your twelve tools should handle it. Read the last \
message, choose exactly one tool, fill in every argument from the words of the resident, and call \
it at once. Do not ask for a confirmation when all values are known.

Light and lamps belong to the light tool, warm and cold to the thermostat, music, radio and \
podcast to the speakers. Things to buy belong to the shopping list, short waits to the timer, and \
everything with a day and a guest to the calendar. Rain, sun and wind belong to the weather, \
doors to the lock, pictures to the camera, words for a resident in another room to the message \
tool, and power and cost to the energy report. When a resident names several steps for one hour \
of a day, create a routine and keep the steps in order.

Copy names, rooms, cities and texts exactly as the resident wrote them. Numbers are integers: \
percent for brightness and volume, minutes for every length, and hours from 0 to 23. Never invent \
a room, a device or a resident. After the tool has answered, tell the resident in one short \
sentence what was done and with which values, so that a mistake can be seen at once.

Some requests need no tool. When a resident asks for JSON, answer with the JSON only. When a \
resident asks for code, answer with one block of Python. When a resident asks for a story or a \
few lines, write freely. Be friendly, be brief, keep secrets of one resident from the others, and \
unlock a door only for a resident who lives here."""
"""The system prompt of the router among :data:`TOOLS`: some 300 words in four paragraphs."""

# --- requests with a tool ----------------------------------------------------------------------


@dataclass(frozen=True)
class ToolRequest:
    """One request of a resident, with everything that an ideal assistant does about it.

    ``text`` is the user's message, ``name`` and ``arguments`` the one right tool call, ``result``
    what the tool answers and ``answer`` the closing sentence of the assistant.
    """

    text: str
    name: str
    arguments: dict[str, Any]
    result: str
    answer: str


@dataclass(frozen=True)
class Request:
    """One request without a tool: ``text`` is the user's message, ``answer`` the ideal reply."""

    text: str
    answer: str


def _light(r: Random) -> ToolRequest:
    room, level, color = r.choice(ROOMS), r.randrange(5, 101, 5), r.choice(COLOURS)
    text = r.choice([
        f"Set the light in the {room} to {level} percent and {color}.",
        f"I want {color} light in the {room} at {level} percent, please.",
        f"Make the {room} {color}, brightness {level}.",
    ])  # fmt: skip
    answer = f"The light in the {room} is now {color} at {level} percent."
    arguments = {"room": room, "brightness": level, "color": color}
    return ToolRequest(text, "set_light", arguments, "done", answer)


def _thermostat(r: Random) -> ToolRequest:
    room, degrees = r.choice(ROOMS), r.randrange(15, 27)
    mode, hour = r.choice(HEATING_MODES), r.randrange(24)
    text = r.choice([
        f"Set the {room} to {degrees} degrees in {mode} mode from {hour} o'clock.",
        f"From {hour} o'clock the {room} should have {degrees} degrees, mode {mode}.",
        f"Please bring the {room} to {degrees} degrees with {mode} at {hour} o'clock.",
    ])  # fmt: skip
    answer = f"The {room} will have {degrees} degrees in {mode} mode from {hour} o'clock."
    arguments = {"room": room, "temperature": degrees, "mode": mode, "hour": hour}
    return ToolRequest(text, "set_thermostat", arguments, "done", answer)


def _media(r: Random) -> ToolRequest:
    genre, source = r.choice(GENRES), r.choice(SOURCES)
    room, volume = r.choice(ROOMS), r.randrange(5, 101, 5)
    text = r.choice([
        f"Play {genre} from the {source} in the {room} at volume {volume}.",
        f"I would like to hear {genre} in the {room}, {source}, volume {volume}.",
        f"Put on some {genre} in the {room} from the {source} at {volume} percent.",
    ])  # fmt: skip
    answer = f"Playing {genre} from the {source} in the {room} at volume {volume}."
    arguments = {"genre": genre, "source": source, "room": room, "volume": volume}
    return ToolRequest(text, "play_media", arguments, "playing", answer)


def _shopping(r: Random) -> ToolRequest:
    item, count = r.choice(GROCERIES), r.randrange(1, 13)
    shop, buyer = r.choice(SHOPS), r.choice(RESIDENTS)
    text = r.choice([
        f"Add {count} {item} from the {shop} to the shopping list, {buyer} will buy it.",
        f"{buyer} should buy {count} {item} at the {shop}.",
        f"We need {count} {item} from the {shop}. Put it on the list for {buyer}.",
    ])  # fmt: skip
    answer = f"I added {count} {item} from the {shop} for {buyer}."
    arguments = {"item": item, "quantity": count, "shop": shop, "buyer": buyer}
    return ToolRequest(text, "add_to_shopping_list", arguments, "added", answer)


def _timer(r: Random) -> ToolRequest:
    label, minutes, room = r.choice(CHORES), r.randrange(2, 60), r.choice(ROOMS)
    text = r.choice([
        f"Start a timer of {minutes} minutes for the {label} in the {room}.",
        f"Remind me in the {room} about the {label} in {minutes} minutes.",
        f"The {label} takes {minutes} minutes. Ring in the {room}, please.",
    ])  # fmt: skip
    answer = f"The timer for the {label} rings in the {room} in {minutes} minutes."
    arguments = {"label": label, "minutes": minutes, "room": room}
    return ToolRequest(text, "start_timer", arguments, "started", answer)


def _event(r: Random) -> ToolRequest:
    title, guest, day = r.choice(TOPICS), r.choice(RESIDENTS), r.choice(DAYS)
    hour, minutes = r.randrange(7, 22), r.randrange(15, 121, 15)
    text = r.choice([
        f"Put {title} with {guest} in the calendar for {day} at {hour} o'clock, {minutes} minutes.",
        f"Invite {guest} to {title} on {day} at {hour} o'clock for {minutes} minutes.",
        f"Plan {minutes} minutes of {title} with {guest} on {day} at {hour} o'clock.",
    ])  # fmt: skip
    answer = f"The {title} with {guest} is on {day} at {hour} o'clock for {minutes} minutes."
    arguments = {
        "title": title, "attendee": guest, "day": day, "hour": hour, "minutes": minutes,
    }  # fmt: skip
    return ToolRequest(text, "create_event", arguments, "created", answer)


def _weather(r: Random) -> ToolRequest:
    city, day, unit = r.choice(CITIES), r.choice(DAYS), r.choice(("celsius", "fahrenheit"))
    sky, degrees = r.choice(("sunny", "cloudy", "rainy", "windy")), r.randrange(2, 35)
    text = r.choice([
        f"What is the weather in {city} on {day} in {unit}?",
        f"I will be in {city} on {day}. Tell me the weather in {unit}.",
        f"How warm will {city} be on {day}? Use {unit}.",
    ])  # fmt: skip
    answer = f"The weather in {city} on {day} is {sky} with {degrees} degrees {unit}."
    arguments = {"city": city, "day": day, "unit": unit}
    return ToolRequest(text, "get_weather", arguments, f"{sky} {degrees}", answer)


def _lock(r: Random) -> ToolRequest:
    door, action, who = r.choice(DOORS), r.choice(("lock", "unlock")), r.choice(RESIDENTS)
    text = r.choice([
        f"Please {action} the {door} door, this is {who}.",
        f"{who} here. Can you {action} the {door} door?",
        f"I am {who}, {action} the {door} door now.",
    ])  # fmt: skip
    answer = f"I did {action} the {door} door for {who}."
    arguments = {"door": door, "action": action, "resident": who}
    return ToolRequest(text, "set_lock", arguments, "done", answer)


def _camera(r: Random) -> ToolRequest:
    camera, screen, minutes = r.choice(CAMERAS), r.choice(SCREENS), r.randrange(1, 60)
    text = r.choice([
        f"Show the {camera} camera on the {screen} for {minutes} minutes.",
        f"I want to see the {camera} on the {screen}, {minutes} minutes please.",
        f"Who is at the {camera}? Put the picture on the {screen} for {minutes} minutes.",
    ])  # fmt: skip
    answer = f"The {screen} shows the {camera} camera for {minutes} minutes."
    arguments = {"camera": camera, "screen": screen, "minutes": minutes}
    return ToolRequest(text, "show_camera", arguments, "showing", answer)


def _message(r: Random) -> ToolRequest:
    who, news, urgency = r.choice(RESIDENTS), r.choice(NEWS), r.choice(("low", "normal", "high"))
    text = r.choice([
        f"Tell {who} that {news}, urgency {urgency}.",
        f"Send {who} a message with {urgency} urgency: {news}.",
        f"Let {who} know that {news}. The urgency is {urgency}.",
    ])  # fmt: skip
    answer = f"I told {who} that {news}."
    arguments = {"recipient": who, "text": news, "urgency": urgency}
    return ToolRequest(text, "send_message", arguments, "sent", answer)


def _energy(r: Random) -> ToolRequest:
    room, device = r.choice(ROOMS), r.choice(DEVICES)
    period, unit, used = r.choice(PERIODS), r.choice(("kilowatts", "euros")), r.randrange(2, 99)
    text = r.choice([
        f"How many {unit} did the {device} in the {room} use? Period {period}.",
        f"Give me the energy report of the {room} {device} in {unit} for {period}.",
        f"What did the {device} of the {room} need, {period}, in {unit}?",
    ])  # fmt: skip
    answer = f"The {device} in the {room} used {used} {unit}."
    arguments = {"room": room, "device": device, "period": period, "unit": unit}
    return ToolRequest(text, "get_energy_report", arguments, f"{used}", answer)


def routine_request(r: Random, steps: int | None = None) -> ToolRequest:
    """Ask for a routine of *steps* steps (3 to 4 when not given): the longest tool calls.

    The call of a routine with three or four steps comes to about 90 to 120 tokens.
    """
    name, day, hour = r.choice(ROUTINES), r.choice(DAYS), r.randrange(24)
    plan = [
        {
            "room": r.choice(ROOMS), "device": r.choice(DEVICES),
            "action": r.choice(ACTIONS), "value": r.randrange(5, 101, 5),
        }
        for _ in range(steps or r.randrange(3, 5))
    ]  # fmt: skip
    spoken = ", then ".join(
        f"{s['action']} the {s['room']} {s['device']} to {s['value']}" for s in plan
    )
    opening = r.choice([
        f"Create the routine {name} on {day} at {hour} o'clock",
        f"I want a routine called {name} for {day} at {hour} o'clock",
    ])  # fmt: skip
    answer = f"The routine {name} runs on {day} at {hour} o'clock."
    arguments = {"name": name, "day": day, "hour": hour, "steps": plan}
    return ToolRequest(f"{opening}: {spoken}.", "create_routine", arguments, "created", answer)


_TOOL_REQUESTS: tuple[Callable[[Random], ToolRequest], ...] = (
    _light, _thermostat, _media, _shopping, _timer, _event, _weather, _lock, _camera, _message,
    _energy, routine_request,
)  # fmt: skip


def tool_request(r: Random) -> ToolRequest:
    """Draw a request for one of the twelve tools, all equally often, and its one right call."""
    return r.choice(_TOOL_REQUESTS)(r)


# --- requests without a tool -------------------------------------------------------------------


def json_request(r: Random) -> Request:
    """Ask for 3 to 5 spoken records as compact JSON: a predictable answer of 60 to 130 tokens."""
    return r.choice((_json_devices, _json_shopping, _json_events))(r)


def _json_devices(r: Random) -> Request:
    rows = [
        {
            "device": r.choice(DEVICES), "room": r.choice(ROOMS),
            "power": r.randrange(10, 100), "active": r.random() < 0.5,
        }
        for _ in range(r.randrange(3, 6))
    ]  # fmt: skip
    spoken = _listed(
        f"{d['device']} in the {d['room']}, power {d['power']}, {'on' if d['active'] else 'off'}"
        for d in rows
    )
    return Request(f"Return these devices as JSON: {spoken}.", json.dumps({"devices": rows}))


def _json_shopping(r: Random) -> Request:
    rows = [
        {
            "item": r.choice(GROCERIES), "quantity": r.randrange(1, 10),
            "shop": r.choice(SHOPS), "buyer": r.choice(RESIDENTS),
        }
        for _ in range(r.randrange(3, 6))
    ]  # fmt: skip
    spoken = _listed(
        f"{d['quantity']} {d['item']} from the {d['shop']} by {d['buyer']}" for d in rows
    )
    return Request(f"Give me the shopping list as JSON: {spoken}.", json.dumps({"shopping": rows}))


def _json_events(r: Random) -> Request:
    rows = [
        {
            "title": r.choice(TOPICS), "attendee": r.choice(RESIDENTS),
            "day": r.choice(DAYS), "hour": r.randrange(7, 22),
        }
        for _ in range(r.randrange(3, 6))
    ]  # fmt: skip
    spoken = _listed(
        f"{d['title']} with {d['attendee']} on {d['day']} at {d['hour']}" for d in rows
    )
    return Request(f"Write these events as JSON: {spoken}.", json.dumps({"events": rows}))


def _listed(parts: Iterable[str]) -> str:
    return "; ".join(parts)


def code_request(r: Random) -> Request:
    """Ask for a small Python function, class or test: a predictable answer of 60 to 120 tokens."""
    return r.choice((_code_loop, _code_class, _code_filter, _code_test))(r)


def _code_loop(r: Random) -> Request:
    device, metric, fold = r.choice(DEVICES), r.choice(METRICS), r.choice(("sum", "max", "min"))
    text = f"Write a Python function that returns the {fold} of {metric} over every {device}."
    answer = (
        f"```python\ndef {fold}_{device}_{metric}(home):\n"
        f'    """Return the {fold} of {metric} over every {device}."""\n'
        f"    values = []\n"
        f"    for {device} in home.devices:\n"
        f'        if {device}.kind == "{device}":\n'
        f"            values.append({device}.{metric})\n"
        f"    if not values:\n"
        f"        return 0\n"
        f"    return {fold}(values)\n```"
    )
    return Request(text, answer)


def _code_class(r: Random) -> Request:
    device = r.choice(DEVICES)
    first, second = r.sample(METRICS, 2)
    text = f"Write a Python class for a {device} with {first} and {second}."
    answer = (
        f"```python\nclass {device.capitalize()}:\n"
        f'    """A {device} with {first} and {second}."""\n\n'
        f"    def __init__(self, {first}, {second}):\n"
        f"        self.{first} = {first}\n"
        f"        self.{second} = {second}\n\n"
        f"    def to_dict(self):\n"
        f'        return {{"{first}": self.{first}, "{second}": self.{second}}}\n```'
    )
    return Request(text, answer)


def _code_filter(r: Random) -> Request:
    room, metric, limit = r.choice(ROOMS), r.choice(METRICS), r.randrange(10, 100)
    text = f"Write a Python function for the {room} devices with {metric} above {limit}."
    answer = (
        f"```python\ndef {room}_devices_above(home, limit={limit}):\n"
        f'    """Return the {room} devices with {metric} above the limit."""\n'
        f"    found = []\n"
        f"    for device in home.devices:\n"
        f'        if device.room == "{room}" and device.{metric} > limit:\n'
        f"            found.append(device)\n"
        f"    return sorted(found, key=lambda device: device.{metric})\n```"
    )
    return Request(text, answer)


def _code_test(r: Random) -> Request:
    device, metric = r.choice(DEVICES), r.choice(METRICS)
    room, value = r.choice(ROOMS), r.randrange(10, 100)
    text = f"Write a Python test: the {device} in the {room} has {metric} {value}."
    answer = (
        f"```python\ndef test_{device}_{metric}(home):\n"
        f'    """The {device} in the {room} has {metric} {value}."""\n'
        f'    {device} = home.find("{room}", "{device}")\n'
        f"    assert {device} is not None\n"
        f'    assert {device}.room == "{room}"\n'
        f"    assert {device}.{metric} == {value}\n```"
    )
    return Request(text, answer)


# --- looser prose ------------------------------------------------------------------------------

_ADJECTIVES = (
    "quiet", "bright", "narrow", "heavy", "golden", "distant", "ancient", "gentle", "sudden",
    "hollow", "velvet", "bitter", "patient", "crooked", "silver", "restless", "humble",
    "fierce", "misty", "pale", "stubborn", "curious", "broken", "endless", "tender", "rusty",
    "clever", "lonely", "shallow", "frozen",
)  # fmt: skip
_NOUNS = (
    "river", "lantern", "orchard", "captain", "harbour", "letter", "winter", "mountain",
    "window", "merchant", "violin", "shadow", "forest", "train", "island", "soldier", "painter",
    "candle", "bridge", "ocean", "stranger", "village", "clock", "thunder", "meadow", "sailor",
    "owl", "ladder", "mirror", "storm",
)  # fmt: skip
_VERBS = (
    "carried", "followed", "remembered", "painted", "crossed", "repaired", "answered",
    "ignored", "watched", "promised", "gathered", "opened", "buried", "measured", "borrowed",
    "discovered", "welcomed", "abandoned", "imagined", "collected",
)  # fmt: skip
_ADVERBS = (
    "slowly", "quietly", "never", "always", "suddenly", "gladly", "barely", "often", "perhaps",
    "almost", "carefully", "twice", "again", "together",
)  # fmt: skip
_PREPOSITIONS = (
    "beyond", "beneath", "beside", "without", "toward", "around", "against", "through",
    "behind", "above",
)  # fmt: skip


def _thing(r: Random) -> str:
    article = r.choice(("the", "a", "her", "his", "every", "that", "some"))
    adjective = f"{r.choice(_ADJECTIVES)} " if r.random() < 0.6 else ""
    return f"{article} {adjective}{r.choice(_NOUNS)}"


def _sentence(r: Random) -> str:
    a, b, c = _thing(r), _thing(r), _thing(r)
    verb, adverb, preposition = r.choice(_VERBS), r.choice(_ADVERBS), r.choice(_PREPOSITIONS)
    shape = r.choice((
        f"{a} {verb} {b} {preposition} {c}",
        f"{adverb}, {a} {verb} {b}",
        f"{r.choice(RESIDENTS)} {adverb} {verb} {a} and {r.choice(_VERBS)} {b}",
        f"{preposition} {a}, {b} {adverb} {verb} {c}",
        f"when {a} {verb} {b}, {r.choice(RESIDENTS)} {r.choice(_VERBS)} {c}",
        f"there was {a} that {r.choice(RESIDENTS)} {verb} {preposition} {b}",
    ))  # fmt: skip
    return shape[0].upper() + shape[1:] + r.choice((".", ".", ".", "!", "?"))


def prose_request(r: Random) -> Request:
    """Ask for a story: 5 to 9 sentences whose words are drawn at random, so hard to predict."""
    opening = r.choice(
        ("Tell me a story about", "Write a few lines about", "Describe", "Imagine", "Dream of")
    )
    answer = " ".join(_sentence(r) for _ in range(r.randrange(5, 10)))
    return Request(f"{opening} {_thing(r)}.", answer)


REQUESTS: dict[str, Callable[[Random], ToolRequest] | Callable[[Random], Request]] = {
    "tool": tool_request,
    "json": json_request,
    "code": code_request,
    "prose": prose_request,
}
"""The request generator of each content class, in the order of falling predictability."""


def request_nonce(r: Random) -> str:
    """Return ``[request DDDDDDDDDDDD]``: a first line that makes every cached prefix useless."""
    return f"[request {r.randrange(10**12):012d}]"
