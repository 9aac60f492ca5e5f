"""An agent that greets and counts, and one that wants to be greeted."""

from mombroker.agents import Agent, notification, reacts


@notification(expose=True)
class Hello:
    who: str


@notification
class Greeting:
    text: str


class Greeter(Agent):
    greeted: int = 0

    @reacts
    def hello(self, note: Hello) -> None:
        self.greeted += 1
        self.reply(Greeting(f"hello {note.who}, you are number {self.greeted}"))


class Guest(Agent):
    name: str
    heard: str = ""

    def on_create(self) -> None:
        self.send("greeter", Hello(self.name))

    @reacts
    def hear(self, note: Greeting) -> None:
        self.heard = note.text
