"""A mail server for one mailbox: SMTP takes letters, IMAP shows those that came to us. Misfortunes on demand."""

from __future__ import annotations

import email.policy
import re
import socketserver
import threading
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any, ClassVar, Self

PASSWORD = "a password of a mailbox"


@dataclass
class FarMail:
    us: str = "fleet@us.example"
    letters: list[bytes] = field(default_factory=list)
    """All that were taken from us."""
    inbox: list[bytes] = field(default_factory=list)
    trouble: str = ""
    """Of the next letter: refuse, throttle, before, after."""
    imap_down: bool = False

    def __enter__(self) -> Self:
        self._servers = []
        for handler in (_Smtp, _Imap):
            server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), type("H", (handler,), {"far": self}))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            self._servers.append(server)
        self.smtp_port, self.imap_port = (server.server_address[1] for server in self._servers)
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def options(self, **more: Any) -> dict[str, Any]:
        here = {"host": "127.0.0.1", "security": "plain", "user": "fleet", "password": {"env": "MAIL_PASSWORD"}}
        return {
            "sender": self.us,
            "to": ["support@provider.example"],
            "smtp": {**here, "port": self.smtp_port},
            "imap": {**here, "port": self.imap_port},
            "timeout_s": 30.0,
            **more,
        }

    def deliver(self, text: str, subject: str, sender: str = "support@provider.example", **headers: str) -> None:
        n = len(self.inbox)
        lines = [f"From: {sender}", f"To: {self.us}", f"Subject: {subject}", f"Message-ID: <in{n}@provider.example>"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += ["Content-Type: text/plain; charset=utf-8", "Content-Transfer-Encoding: 8bit", "", text]
        self.inbox.append("\r\n".join(lines).replace("\n", "\r\n").replace("\r\r\n", "\r\n").encode())


class _Line(socketserver.StreamRequestHandler):
    far: ClassVar[FarMail]

    def say(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\r\n")

    def hear(self) -> str:
        return self.rfile.readline().decode().rstrip("\r\n")


class _Smtp(_Line):
    def handle(self) -> None:
        self.say("220 far")
        to: list[str] = []
        while line := self.hear():
            verb = line.split()[0].upper()
            if verb == "EHLO":
                self.say("250-far")
                self.say("250 AUTH PLAIN LOGIN")
            elif verb == "AUTH":
                import base64

                given = base64.b64decode(line.split()[2]).decode().split("\0")[-1]
                self.say("235 in" if given == PASSWORD else f"535 wrong: password={given}")
            elif verb == "MAIL":
                trouble = self.far.trouble if self.far.trouble in ("refuse", "throttle") else ""
                self.far.trouble = "" if trouble else self.far.trouble
                self.say({"refuse": "550 no", "throttle": "451 later"}.get(trouble, "250 ok"))
            elif verb == "RCPT":
                to.append(line)
                self.say("250 ok")
            elif verb == "DATA":
                self.say("354 go")
                body = b""
                while (row := self.rfile.readline()) != b".\r\n":
                    body += row[1:] if row.startswith(b"..") else row
                trouble, self.far.trouble = self.far.trouble, ""
                if trouble == "before":
                    return
                self.far.letters.append(body)
                if any(self.far.us in one for one in to):
                    self.far.inbox.append(body)
                if trouble == "after":
                    return
                self.say("250 taken")
            elif verb == "QUIT":
                self.say("221 bye")
                return
            else:
                self.say("250 ok")


class _Imap(_Line):
    def handle(self) -> None:
        if self.far.imap_down:
            return
        self.say("* OK far")
        while line := self.hear():
            tag, verb, *rest = line.split(" ", 2)
            given = rest[0] if rest else ""
            if verb == "UID":
                verb, _, given = given.partition(" ")
            match verb.upper():
                case "LOGIN":
                    self.say(f"{tag} OK in" if f'"{PASSWORD}"' in given else f"{tag} NO [AUTHENTICATIONFAILED] wrong")
                    continue
                case "CAPABILITY":
                    self.say("* CAPABILITY IMAP4rev1")
                case "EXAMINE" | "SELECT":
                    self.say(f"* {len(self.far.inbox)} EXISTS")
                case "SEARCH":
                    self.say(f"* SEARCH {' '.join(self.search(given))}".rstrip())
                case "FETCH":
                    raw = self.far.inbox[int(given.split()[0]) - 1]
                    self.wfile.write(b"* 1 FETCH (UID 1 BODY[]<0> {%d}\r\n" % len(raw) + raw + b")\r\n")
                case "LOGOUT":
                    self.say("* BYE")
                    self.say(f"{tag} OK done")
                    return
            self.say(f"{tag} OK done")

    def search(self, given: str) -> list[str]:
        header, wanted = re.fullmatch(r'(?:HEADER )?(\S+) "(.*)"', given).groups()  # type: ignore[union-attr]
        found = []
        for n, raw in enumerate(self.far.inbox, 1):
            value = str(message_from_bytes(raw, policy=email.policy.default).get(header, ""))
            if wanted.lower() in value.lower():
                found.append(str(n))
        return found
