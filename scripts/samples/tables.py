"""The hand-written tables of pairs.py."""

IOI = (
    ("Mary", "John", "When {A} and {B} went to the store, {} gave a drink to"),
    ("Anna", "Paul", "After {A} and {B} had dinner together, {} handed the bill to"),
    ("James", "Alice", "While {A} and {B} were waiting for the train, {} read a story to"),
    ("Sarah", "Tom", "Because {A} and {B} both liked music, {} lent a guitar to"),
    ("Peter", "Kate", "Last week {A} and {B} moved house, and {} passed a heavy box to"),
    ("Emma", "Mark", "At the office {A} and {B} talked for an hour before {} sent a letter to"),
    ("David", "Laura", "When {A} and {B} met in the park, {} offered an apple to"),
    ("Susan", "Robert", "Before {A} and {B} left the museum, {} showed the map to"),
    ("Daniel", "Rachel", "As {A} and {B} sat by the fire, {} told a joke to"),
    ("Maria", "Simon", "Since {A} and {B} shared a garden, {} brought some seeds to"),
    ("Jack", "Lisa", "During the trip {A} and {B} lost their way, so {} gave the compass to"),
    ("Helen", "Martin", "Once {A} and {B} had fixed the boat, {} threw the rope to"),
    ("George", "Julia", "Then {A} and {B} walked to the bakery, and {} gave a cake to"),
    ("Jane", "Frank", "In the morning {A} and {B} cleaned the kitchen, and {} made tea for"),
    ("Michael", "Linda", "Yesterday {A} and {B} played chess, and {} explained the rules to"),
    ("Alex", "Ruth", "When {A} and {B} opened the shop, {} gave the keys to"),
    ("Lucy", "Henry", "On the bridge {A} and {B} stopped, and {} handed the camera to"),
    ("Adam", "Nancy", "After the storm {A} and {B} checked the roof, and {} passed a hammer to"),
)

FACTS = (
    (
        "The capital of {} is the city of",
        (
            ("France", "Italy", "Paris", "Rome"),
            ("Spain", "Germany", "Madrid", "Berlin"),
            ("Japan", "China", "Tokyo", "Beijing"),
            ("Greece", "Poland", "Athens", "Warsaw"),
            ("Ireland", "Portugal", "Dublin", "Lisbon"),
            ("Norway", "Sweden", "Oslo", "Stockholm"),
        ),
    ),
    (
        "People in {} mostly speak",
        (
            ("Mexico", "Brazil", "Spanish", "Portuguese"),
            ("Austria", "France", "German", "French"),
            ("Egypt", "Italy", "Arabic", "Italian"),
            ("Russia", "Sweden", "Russian", "Swedish"),
        ),
    ),
    (
        "The country of {} lies on the continent of",
        (
            ("Nigeria", "India", "Africa", "Asia"),
            ("Germany", "Thailand", "Europe", "Asia"),
            ("Kenya", "Poland", "Africa", "Europe"),
        ),
    ),
    (
        "The official currency of {} is the",
        (
            ("Germany", "Canada", "euro", "dollar"),
            ("Spain", "Australia", "euro", "dollar"),
        ),
    ),
    (
        "The {} is an animal that lives in the",
        (
            ("whale", "monkey", "ocean", "forest"),
            ("shark", "camel", "ocean", "desert"),
            ("fish", "bear", "water", "forest"),
        ),
    ),
)

AGREEMENT = (
    ("The {} to the cabinet", "keys", "key", ("are", "is")),
    ("The {} near the window", "chairs", "chair", ("were", "was")),
    ("The {} beside the old church", "houses", "house", ("were", "was")),
    ("The {} of the company", "managers", "manager", ("have", "has")),
    ("The {} behind the truck", "cars", "car", ("were", "was")),
    ("The {} in the box", "letters", "letter", ("were", "was")),
    ("The {} from the village", "farmers", "farmer", ("have", "has")),
    ("The {} on the table", "books", "book", ("are", "is")),
    ("The {} across the river", "bridges", "bridge", ("were", "was")),
    ("The {} with the red roof", "buildings", "building", ("are", "is")),
    ("The {} under the tree", "dogs", "dog", ("were", "was")),
    ("The {} for the guest", "rooms", "room", ("are", "is")),
    ("The {} in front of the school", "trees", "tree", ("were", "was")),
    ("The {} above the door", "signs", "sign", ("were", "was")),
    ("The {} by the famous painter", "pictures", "picture", ("are", "is")),
    ("The {} at the end of the street", "shops", "shop", ("were", "was")),
    ("The {} against the new plan", "arguments", "argument", ("are", "is")),
)

SPANS = (
    ("war", "17", "63", "13", "8", "2"),
    ("siege", "18", "52", "02", "6", "1"),
    ("voyage", "16", "74", "14", "8", "2"),
    ("famine", "15", "61", "11", "7", "2"),
    ("drought", "18", "73", "13", "8", "2"),
    ("project", "19", "64", "14", "7", "2"),
    ("reign", "14", "52", "12", "6", "2"),
    ("strike", "19", "71", "11", "8", "2"),
    ("alliance", "17", "44", "04", "5", "1"),
    ("expedition", "18", "63", "13", "7", "2"),
    ("rebellion", "16", "45", "05", "6", "1"),
    ("construction", "15", "73", "13", "8", "2"),
    ("partnership", "19", "53", "13", "6", "2"),
    ("occupation", "17", "82", "12", "9", "2"),
)

PRONOUNS = (
    ("My {} said that", "father", "mother", ("he", "she")),
    ("The {} smiled when", "boy", "girl", ("he", "she")),
    ("Her {} called to say that", "brother", "sister", ("he", "she")),
    ("Our {} told us that", "uncle", "aunt", ("he", "she")),
    ("The {} lost the ring that", "prince", "princess", ("he", "she")),
    ("The old {} sat down because", "man", "woman", ("he", "she")),
    ("Their {} sang the song that", "son", "daughter", ("he", "she")),
    ("The {} put the coat on", "husband", "wife", ("his", "her")),
    ("The tall {} said that", "man", "woman", ("he", "she")),
    ("I asked my {} whether", "brother", "sister", ("he", "she")),
    ("The young {} knew that", "prince", "princess", ("he", "she")),
    ("The {} ran to the river because", "boy", "girl", ("he", "she")),
    ("My {} lives in a house that", "son", "daughter", ("he", "she")),
    ("The {} was proud of", "father", "mother", ("his", "her")),
    ("We met the {} and thanked", "king", "queen", ("him", "her")),
    ("My {} is old, but", "grandfather", "grandmother", ("he", "she")),
    ("The {} forgot the name of", "husband", "wife", ("his", "her")),
)

INDUCTION = (
    ("river lamp stone cloud", "chair"),
    ("paper tiger window salt", "bridge"),
    ("garden seven copper dance", "truck"),
    ("music butter north glass", "horse"),
    ("bottle winter engine leaf", "king"),
    ("circle mountain soap train", "bird"),
    ("letter orange metal sleep", "house"),
    ("coffee shadow wheel rain", "book"),
    ("planet finger wood queen", "milk"),
    ("silver market bear radio", "snow"),
    ("forest button clock sugar", "wind"),
    ("hammer yellow ocean pencil", "bread"),
)

# Two solved pairs, then (word, its opposite) of the clean and of the corrupted prompt.
ANTONYMS = (
    ("up down", "old young", "hot cold", "big small"),
    ("big small", "wet dry", "day night", "love hate"),
    ("in out", "rich poor", "left right", "black white"),
    ("day night", "near far", "high low", "fast slow"),
    ("hot cold", "full empty", "good bad", "true false"),
    ("fast slow", "soft hard", "open closed", "dark light"),
    ("black white", "thick thin", "old young", "strong weak"),
    ("left right", "good bad", "north south", "east west"),
    ("war peace", "high low", "early late", "inside outside"),
    ("push pull", "open closed", "first last", "top bottom"),
    ("love hate", "early late", "male female", "long short"),
    ("true false", "short long", "buy sell", "win lose"),
)

CODE = (
    ("send", "self message address", "port"),
    ("load", "path mode limit", "size"),
    ("draw", "image width color", "height"),
    ("find", "text word start", "end"),
    ("move", "self player speed", "time"),
    ("write", "file data offset", "count"),
    ("search", "query index depth", "order"),
    ("plot", "points style title", "label"),
    ("train", "model batch rate", "loss"),
    ("count", "table column value", "key"),
    ("merge", "left right order", "name"),
    ("sleep", "task delay reason", "state"),
)
