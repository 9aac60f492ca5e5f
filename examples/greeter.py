"""An agent that greets and counts, and one that wants to be greeted."""

from mombroker.agents import Agent, notification, reacts


@notification
class Hello:
    name: str


@notification
class Greeting:
    text: str


class Greeter(Agent):
    count: int = 0

    @reacts
    def greet(self, hello: Hello) -> None:
        self.count += 1
        self.reply(Greeting(f"Hello {hello.name}, you are number {self.count}."))


class Guest(Agent):
    name: str
    heard: str = ""

    def on_create(self) -> None:
        self.send("greeter", Hello(self.name))

    @reacts
    def hear(self, greeting: Greeting) -> None:
        self.heard = greeting.text
