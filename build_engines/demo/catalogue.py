"""Hand-written kinds of tools, with the ways in which people ask for them.

A row: names | descriptions | parameters `key:kind:description` | requests.
A request uses `{key}`; kinds are the lexicon's, `enum(a,b)`, `list(kind)` or `boolean`.
The rows under UNSEEN are never trained on.
"""

# ruff: noqa: E501, SIM905  (words and sentences read best as plain text)

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    key: str
    kind: str
    description: str


@dataclass(frozen=True, slots=True)
class Family:
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    slots: tuple[Slot, ...]
    requests: tuple[str, ...]


def family(names: str, descriptions: str, slots: str, requests: str) -> Family:
    return Family(
        tuple(names.split("|")),
        tuple(descriptions.split("|")),
        tuple(Slot(*slot.split(":")) for slot in slots.split("|") if slot),
        tuple(requests.split("|")),
    )


SEEN: tuple[Family, ...] = (
    family(
        "get_weather|weather|current_weather|getWeather|lookup_weather|get_current_weather",
        "Get the weather in a city.|Current weather for a place.|Get the current weather",
        "city:city:The city|unit:enum(celsius,fahrenheit):Temperature unit",
        "What is the weather in {city}?|How is the weather in {city}?|What's the weather like in {city} in {unit}?"
        "|Weather in {city} please|Tell me the weather in {city} in {unit}|Is it raining in {city}?"
        "|What is the temperature in {city}, in {unit}?|How warm is it in {city} today?|How hot is it in {city}?"
        "|What is the weather like in {city} right now?|Get me the {unit} temperature for {city}",
    ),
    family(
        "get_forecast|weather_forecast|forecast",
        "Weather forecast for some days.|Forecast for a location",
        "location:city:Where|days:count:Number of days",
        "What is the forecast for {location} for {days} days?|Give me the {days} day forecast for {location}"
        "|Forecast for {location}, next {days} days|How will the weather be in {location} in the next {days} days?",
    ),
    family(
        "get_time|current_time|time_in_city|getTime",
        "Current time in a city.|Get the local time",
        "city:city:The city",
        "What time is it in {city}?|Tell me the time in {city}|Current time in {city}?"
        "|What is the local time in {city} now?",
    ),
    family(
        "send_email|email|sendEmail|mail_send",
        "Send an email to someone.|Send an e-mail",
        "to:email:Address of the receiver|subject:title:Subject line|body:sentence:Text of the mail",
        "Send an email to {to} with the subject {subject} and say: {body}|Email {to}: {body}"
        "|Send a mail to {to} about {subject}|Write to {to} with subject {subject}: {body}"
        "|Please email {to} that {body}",
    ),
    family(
        "send_message|text_message|sms|message_send",
        "Send a text message to a person.|Send a message",
        "recipient:person:Who gets it|text:sentence:The message",
        'Tell {recipient}: {text}|Send "{text}" to {recipient}|Message {recipient}: {text}|Text {recipient} {text}'
        "|Send {recipient} a message saying {text}",
    ),
    family(
        "get_stock_price|stock_price|quote_stock|stockPrice",
        "Price of a stock.|Get the price of a share",
        "symbol:ticker:Ticker symbol",
        "What is the stock price of {symbol}?|How much is {symbol} trading at?"
        "|Price of {symbol} stock|How is {symbol} doing on the market?|Get the share price of {symbol}",
    ),
    family(
        "convert_currency|currency|exchange",
        "Convert money between currencies.|Convert an amount of money",
        "amount:number:How much|from_currency:ticker:Currency to convert from|to_currency:ticker:Currency to convert to",
        "Convert {amount} {from_currency} to {to_currency}|How much is {amount} {from_currency} in {to_currency}?"
        "|What are {amount} {from_currency} worth in {to_currency}?|Change {amount} {from_currency} into {to_currency}",
    ),
    family(
        "add|add_numbers|sum|plus",
        "Add two numbers.|Sum of two numbers",
        "a:number:First number|b:number:Second number",
        "What is {a} plus {b}?|Add {a} and {b}|What is {a} + {b}?|Calculate {a} + {b}|Sum {a} and {b}",
    ),
    family(
        "multiply|multiply_numbers|product",
        "Multiply two numbers.|Product of two numbers",
        "a:number:First number|b:number:Second number",
        "What is {a} times {b}?|Multiply {a} by {b}|What is {a} * {b}?|Calculate {a} * {b}|Multiply {a} and {b}",
    ),
    family(
        "divide|divide_numbers",
        "Divide one number by another.",
        "dividend:number:Number to divide|divisor:number:Divide by this",
        "What is {dividend} divided by {divisor}?|Divide {dividend} by {divisor}|What is {dividend} / {divisor}?",
    ),
    family(
        "power|pow|raise",
        "Raise a number to a power.",
        "base:integer:The base|exponent:integer:The exponent",
        "What is {base} to the power of {exponent}?|Raise {base} to {exponent}|Compute {base} to the power {exponent}",
    ),
    family(
        "set_timer|timer|start_timer",
        "Start a timer.|Set a countdown",
        "minutes:count:Length in minutes|label:word:Name of the timer",
        "Set a timer for {minutes} minutes|Start a {minutes} minute timer called {label}|Timer for {minutes} minutes please"
        "|Set a {label} timer for {minutes} minutes|Wake me up in {minutes} minutes",
    ),
    family(
        "set_alarm|alarm|create_alarm",
        "Set an alarm at a time of day.|Set an alarm",
        "time:time:Time of day",
        "Set an alarm for {time}|Wake me up at {time}|Alarm at {time} please|I need an alarm at {time}",
    ),
    family(
        "create_event|add_event|calendar_event|createEvent",
        "Add an event to the calendar.|Create a calendar event",
        "title:title:Title|date:date:Day of the event|time:time:When it starts",
        "Create an event called {title} on {date} at {time}|Put {title} on my calendar for {date}"
        "|Add {title} to my calendar on {date} at {time}|Schedule {title} on {date} at {time}",
    ),
    family(
        "search_web|web_search|search|google|searchWeb",
        "Search the web.|Search the internet for a query",
        "query:phrase:What to search for|limit:count:Number of results",
        "Search the web for {query}|Look up {query} online|Find me {limit} results about {query}|Search for {query}"
        "|Google {query}|Search online for {query} and give me {limit} results",
    ),
    family(
        "book_flight|flight_booking|reserve_flight",
        "Book a flight.|Book a plane ticket",
        "origin:city:From|destination:city:To|date:date:Day of departure",
        "Book a flight from {origin} to {destination} on {date}|I want to fly from {origin} to {destination}"
        "|Fly me from {origin} to {destination} on {date}|I need a plane ticket to {destination} from {origin} on {date}",
    ),
    family(
        "book_hotel|reserve_hotel|hotel_booking",
        "Book a hotel room.|Reserve a hotel",
        "city:city:City|nights:count:Number of nights|breakfast:boolean:With breakfast",
        "Book a hotel in {city} for {nights} nights|I need a hotel in {city} for {nights} nights {breakfast}"
        "|Find me a room in {city} for {nights} nights {breakfast}|Reserve a hotel in {city} {breakfast}",
    ),
    family(
        "book_table|reserve_table|table_reservation",
        "Reserve a table in a restaurant.",
        "restaurant:title:Name of the restaurant|people:count:Number of people|time:time:When",
        "Book a table at {restaurant} for {people} people at {time}|Reserve a table for {people} at {restaurant}"
        "|I want to eat at {restaurant} with {people} people at {time}",
    ),
    family(
        "translate|translate_text|translation",
        "Translate text to another language.",
        "text:phrase:Text to translate|language:enum(French,German,Spanish,Italian,Polish):Target language",
        "Translate {text} to {language}|How do you say {text} in {language}?|What is {text} in {language}?"
        '|Translate "{text}" into {language}',
    ),
    family(
        "play_music|play_song|music_player",
        "Play a song.|Play music",
        "song:title:Title of the song|artist:person:Who sings it",
        "Play {song} by {artist}|Play the song {song}|I want to hear {song} by {artist}|Put on {song}",
    ),
    family(
        "set_light|switch_light|light|lamp_control",
        "Switch a light on or off.|Control a light",
        "room:word:Which room|state:enum(on,off):New state",
        "Turn {state} the light in the {room}|Turn the {room} light {state}|Switch {state} the {room} lamp"
        "|Switch the light in the {room} {state}",
    ),
    family(
        "set_temperature|thermostat|heating",
        "Set the thermostat.|Set the room temperature",
        "room:word:Which room|degrees:decimal:Degrees",
        "Set the {room} to {degrees} degrees|Heat the {room} to {degrees} degrees"
        "|Make the {room} {degrees} degrees warm",
    ),
    family(
        "read_file|open_file|readFile|cat",
        "Read a file.|Return the content of a file",
        "path:path:Path of the file",
        "Read the file {path}|What is in {path}?|Open {path}|Show me the content of {path}",
    ),
    family(
        "delete_file|remove_file|rm",
        "Delete a file.|Remove a file from disk",
        "path:path:Path of the file|force:boolean:Do not ask",
        "Delete {path}|Remove the file {path} {force}|Erase {path}|Delete the file {path} {force}",
    ),
    family(
        "get_user|find_user|user_lookup|getUser",
        "Find a user by name.|Look up a user",
        "name:full_name:Name of the user",
        "Who is the user {name}?|Find the user {name}|Look up {name}|Get the account of {name}",
    ),
    family(
        "create_user|register_user|add_user",
        "Register a new user.|Create a user account",
        "name:person:Full name|email:email:Mail address|age:count:Age in years|admin:boolean:Administrator",
        "Create a user named {name} with the email {email}|Register {name}, {age} years old, mail {email}"
        "|Add the user {name} with email {email} {admin}|Sign up {name} who is {age}",
    ),
    family(
        "order_food|food_order|order_pizza",
        "Order food.|Order a meal",
        "dish:word:What to eat|quantity:count:How many|size:enum(small,medium,large):Size",
        "Order {quantity} {dish}|I want {quantity} {size} {dish}|Get me a {size} {dish}|Order a {size} {dish} please",
    ),
    family(
        "add_tags|tag_item|label_item",
        "Add tags to an item.",
        "item:code:Item number|tags:list(word):Tags to add",
        "Tag {item} with {tags}|Add the tags {tags} to {item}|Label {item} as {tags}",
    ),
    family(
        "create_list|shopping_list|add_to_list",
        "Put items on a list.|Create a shopping list",
        "items:list(word):Things on the list",
        "Make a shopping list with {items}|Put {items} on my list|I need to buy {items}|Add {items} to the list",
    ),
    family(
        "invite|invite_people|send_invites",
        "Invite people to an event.",
        "people:list(name):Who to invite|event:title:Name of the event",
        "Invite {people} to {event}|Send an invitation for {event} to {people}|Ask {people} to come to {event}",
    ),
    family(
        "average|mean|avg",
        "Average of a list of numbers.|Compute the mean",
        "numbers:list(integer):The numbers",
        "What is the average of {numbers}?|Compute the mean of {numbers}|Average {numbers}",
    ),
    family(
        "track_order|order_status|track_package",
        "Status of an order.|Track a package",
        "order_id:code:Order number",
        "Where is my order {order_id}?|What is the status of order {order_id}?|Track order {order_id}|Track my package {order_id}",
    ),
    family(
        "create_ticket|open_ticket|report_bug",
        "Open a support ticket.|Report a problem",
        "title:phrase:What is wrong|priority:enum(low,medium,high,urgent):How urgent",
        "Open a ticket with {priority} priority: {title}|Report a bug: {title}|Create a {priority} ticket about {title}",
    ),
    family(
        "get_distance|distance|route_length",
        "Distance between two places.",
        "start:city:Starting point|end:city:End point",
        "How far is it from {start} to {end}?|What is the distance between {start} and {end}?|Distance from {start} to {end}",
    ),
    family(
        "call_phone|phone_call|dial",
        "Call a phone number.|Make a phone call",
        "number:phone:Number to call",
        "Call {number}|Dial {number}|Phone {number} for me|Make a call to {number}",
    ),
    family(
        "set_reminder|remind|create_reminder",
        "Set a reminder.|Remind the user",
        "text:phrase:What to remember|time:time:When",
        "Remind me at {time} to {text}|Set a reminder for {time}: {text}|Remind me about {text} at {time}",
    ),
    family(
        "set_volume|volume",
        "Set the volume.|Change how loud it is",
        "level:count:From 0 to 100",
        "Set the volume to {level}|Volume {level}|Make it {level} percent loud|Turn the volume to {level}",
    ),
    family(
        "get_news|news|headlines",
        "Latest news about a topic.|Get news headlines",
        "topic:word:Topic|count:count:Number of headlines",
        "What is the news about {topic}?|Give me {count} headlines about {topic}|News on {topic}|Any news about {topic}?",
    ),
    family(
        "find_restaurant|restaurants|search_restaurants",
        "Find a restaurant.",
        "city:city:City|cuisine:word:Kind of food",
        "Find a {cuisine} restaurant in {city}|Where can I eat {cuisine} in {city}?|Restaurants in {city}",
    ),
    family(
        "random_number|random|roll",
        "Draw a random number.",
        "min:integer:Smallest|max:integer:Largest",
        "Give me a random number between {min} and {max}|Draw a number from {min} to {max}|Random number from {min} to {max}",
    ),
    family(
        "list_users|all_users",
        "List all users.|Return every user",
        "",
        "List all users|Show me all users|Which users are there?|Who are the users?",
    ),
    family(
        "reboot|restart|restart_machine",
        "Restart the machine.",
        "",
        "Restart the machine|Reboot|Please reboot the machine",
    ),
    family("roll_dice|dice", "Roll a die.", "", "Roll a die|Roll the dice|Throw a die for me"),
    family(
        "get_location|where_am_i",
        "Get the position of the user.",
        "",
        "Where am I right now?|Get my location|What is my position?",
    ),
)

# Other names under which a parameter of a hand-written kind may stand.
OTHER_KEYS: dict[str, tuple[str, ...]] = {
    "city": ("location", "place", "town"),
    "location": ("city", "place"),
    "a": ("x", "first", "left"),
    "b": ("y", "second", "right"),
    "to": ("recipient", "address", "email"),
    "symbol": ("ticker", "stock"),
    "query": ("q", "text", "search_term"),
    "unit": ("units", "scale"),
    "path": ("file", "filename", "file_path"),
    "date": ("day",),
    "time": ("at", "start_time"),
    "minutes": ("duration", "length"),
    "text": ("message", "content"),
    "name": ("user_name", "full_name"),
    "numbers": ("values",),
    "order_id": ("id", "number"),
    "count": ("limit", "n"),
}

UNSEEN: tuple[Family, ...] = (
    family(
        "subscribe|newsletter_signup",
        "Subscribe an address to a newsletter.",
        "email:email:Address|newsletter:word:Which newsletter",
        "Subscribe {email} to the {newsletter} newsletter|Sign {email} up for the {newsletter} newsletter",
    ),
    family(
        "rent_car|car_rental",
        "Rent a car.",
        "city:city:Where to pick it up|days:count:For how many days",
        "Rent a car in {city} for {days} days|I need a rental car in {city} for {days} days",
    ),
    family(
        "get_population|population",
        "Population of a country or city.",
        "place:city:Name of the place",
        "What is the population of {place}?|How many people live in {place}? Look up the population",
    ),
    family(
        "transfer_money|bank_transfer",
        "Transfer money to an account.",
        "receiver:person:Who gets the money|amount:number:How much",
        "Transfer {amount} to {receiver}|Transfer the money to {receiver}, amount {amount}",
    ),
    family(
        "water_plants|irrigation",
        "Water the plants.",
        "zone:word:Part of the garden|minutes:count:For how long",
        "Water the plants in the {zone} for {minutes} minutes|Water the {zone} plants for {minutes} minutes",
    ),
    family(
        "compress_file|zip_file",
        "Compress a file.",
        "path:path:The file|level:enum(fast,best):How well",
        "Compress the file {path}|Compress {path} with the level {level}",
    ),
    family(
        "mute_channel|silence",
        "Mute a channel.",
        "channel:word:Which channel|muted:boolean:Mute it",
        "Mute the channel {channel}|Mute the {channel} channel",
    ),
    family(
        "merge_files|join_files",
        "Merge several files into one.",
        "paths:list(path):Files to merge",
        "Merge {paths}|Merge the files {paths}",
    ),
    family(
        "hire|hire_worker",
        "Hire a worker.",
        "name:full_name:Name|role:word:The job|salary:integer:Pay in a year",
        "Hire {name} as {role} with a salary of {salary}|Hire {name} for the role {role}",
    ),
    family(
        "measure_length|ruler",
        "Length of an item.",
        "item:code:Item number|unit:enum(cm,inch,meter):Unit of length",
        "What is the length of item {item}?|Measure the length of {item} in {unit}",
    ),
)
