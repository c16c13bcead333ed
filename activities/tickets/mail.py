"""Tickets by e-mail: sent by SMTP, answers read by IMAP, or delivered to the gateway's webhook instead.

The key stands in every subject. Our own address gets a copy, which is how a letter that may have been sent is found.
"""

from __future__ import annotations

import imaplib
import smtplib
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, StringConstraints, model_validator

from activities.failures import redact
from activities.ports import NotAllowed, NotSent, Thread, TicketRef, Unclear, Unreadable
from activities.secret import Secret, here
from activities.tickets import mail_text
from activities.tickets.options import TicketOptions, mark, short
from medevac.model import Model

T = TypeVar("T")
Address = Annotated[str, StringConstraints(pattern=r"^[^@\s<>,;\"]{1,64}@[A-Za-z0-9.-]{1,255}$")]
BUSY_S = 60.0
MOST_READ = 50
"""Newest letters of one case that are read."""
MOST_BYTES = 500_000
ANSWERS = ("References", "In-Reply-To")


class Server(Model):
    host: str
    port: int = 0
    security: Literal["tls", "starttls", "plain"] = "tls"
    """`plain` only to this very machine."""
    user: str = ""
    password: Secret | None = None

    @model_validator(mode="after")
    def _safe(self) -> Self:
        if self.security == "plain" and not here(self.host):
            raise ValueError(f"{self.host}: `security: plain` sends letters and passwords in the clear; use `tls`")
        if bool(self.user) != (self.password is not None):
            raise ValueError("`user` and `password` go together")
        return self


class Options(TicketOptions):
    sender: Address
    """Ours. Answers come to it."""
    to: tuple[Address, ...] = Field(min_length=1)
    """The provider's support."""
    cc: tuple[Address, ...] = ()
    smtp: Server
    imap: Server | None = None
    """Where answers are read; None: they are delivered to the gateway, and what may have been sent can't be found."""
    mailbox: str = Field(default="INBOX", pattern=r'^[^"\\\r\n]{1,200}$')


class MailTickets:
    simulated = False

    def __init__(self, name: str, options: Options) -> None:
        self.name = name
        self.share = options.share
        self.own = options.sender
        """Our address. Letters with it and with an id that we made are ours, whoever delivers them."""
        self._options = options

    def find(self, key: str) -> TicketRef | None:
        if self._options.imap is None:
            return None
        ref = self._ref(key)
        with self._inbox() as inbox:
            found = self._search(inbox, "HEADER", "Message-ID", f'"<{ref.id}>"')
        return ref if found else None

    def open(self, key: str, title: str, body: str, provider: str) -> TicketRef:
        ref = self._ref(key)
        letter = self._letter(f"{title} {mark(key)}", body, ref.id)
        self._send(letter)
        return ref

    def thread(self, ref: TicketRef, key: str) -> Thread:
        if self._options.imap is None:
            return Thread(open=True)
        now = datetime.now(UTC)
        said = []
        with self._inbox() as inbox:
            ways = (("SUBJECT", f'"{key}"'), *(("HEADER", name, f'"<{ref.id}>"') for name in ANSWERS))
            found = {uid for way in ways for uid in self._search(inbox, *way)}
            for uid in sorted(found, key=int)[-MOST_READ:]:
                message = mail_text.parse(self._fetch(inbox, uid))
                if mark(key) in mail_text.header(message, "subject") or ref.id in mail_text.answered(message):
                    said.append(mail_text.said(message, now, self._options.sender))
        return Thread(open=True, said=tuple(sorted(said, key=lambda one: one.at)))

    def comment(self, ref: TicketRef, key: str, token: str, text: str) -> None:
        letter = self._letter(f"Re: {mark(key)}", f"{text}\n\n[{token}]", self._id(token))
        letter["In-Reply-To"] = letter["References"] = f"<{ref.id}>"
        self._send(letter)

    def close(self, ref: TicketRef, key: str) -> None:
        """Nothing to do: the last letter has said it."""

    def missing_rights(self) -> list[str]:
        """Signs in at both. Raises `Unreadable`."""
        try:
            self._connected().quit()
        except NotSent as error:
            raise (NotAllowed if error.final else Unreadable)(str(error)) from None
        if self._options.imap is not None:
            with self._inbox():
                pass
        return []

    # -- SMTP --------------------------------------------------------------------------------------------------

    def _letter(self, subject: str, body: str, id: str) -> EmailMessage:
        letter = EmailMessage()
        letter["From"] = self._options.sender
        letter["To"] = ", ".join(self._options.to)
        if self._options.cc:
            letter["Cc"] = ", ".join(self._options.cc)
        letter["Subject"] = " ".join(subject.split())
        letter["Date"] = formatdate()
        letter["Message-ID"] = f"<{id}>"
        letter.set_content(body)
        return letter

    def _send(self, letter: EmailMessage) -> None:
        """What was refused before the letter's body was surely not sent; a silence after it tells nothing."""
        smtp = self._connected()
        try:
            with suppress_disconnect(smtp):
                self._answered(lambda: smtp.mail(self._options.sender))
                for address in (*self._options.to, *self._options.cc):
                    self._answered(lambda address=address: smtp.rcpt(address))  # type: ignore[misc]
                if self._options.imap is not None:
                    with suppress(NotSent):
                        self._answered(lambda: smtp.rcpt(self._options.sender))
                try:
                    code, said = smtp.data(letter.as_bytes(policy=letter.policy.clone(linesep="\r\n")))
                except smtplib.SMTPDataError as error:
                    code, said = error.smtp_code, error.smtp_error  # type: ignore[assignment]
                except (OSError, smtplib.SMTPException) as error:
                    raise Unclear(f"{self.name}: no answer to the letter: {short(error)}") from None
                self._judge(code, said)
        finally:
            smtp.close()

    def _connected(self) -> smtplib.SMTP:
        """Raises `NotSent`."""
        server, timeout = self._options.smtp, self._options.timeout_s
        smtp: smtplib.SMTP | None = None
        try:
            if server.security == "tls":
                smtp = smtplib.SMTP_SSL(
                    server.host, server.port or 465, timeout=timeout, context=ssl.create_default_context()
                )
            else:
                smtp = smtplib.SMTP(server.host, server.port or 587, timeout=timeout)
            if server.security == "starttls":
                smtp.starttls(context=ssl.create_default_context())
            if server.password is not None:
                smtp.login(server.user, server.password.value())
            else:
                smtp.ehlo_or_helo_if_needed()
            connected, smtp = smtp, None
            return connected
        except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError, NotAllowed, ssl.SSLError) as error:
            raise NotSent(f"{self.name}: {server.host} doesn't let us in: {short(error)}", final=True) from None
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(f"{self.name}: {server.host}: {short(error)}") from None
        finally:
            if smtp is not None:
                smtp.close()

    def _answered(self, command: Callable[[], tuple[int, bytes]]) -> None:
        try:
            code, said = command()
        except (OSError, smtplib.SMTPException) as error:
            raise NotSent(f"{self.name}: {short(error)}") from None
        self._judge(code, said)

    def _judge(self, code: int, said: bytes) -> None:
        text = f"{self.name}: {code} {redact(said.decode('utf-8', 'replace'), 200)}"
        if 400 <= code < 500:
            raise NotSent(text, retry_after_s=BUSY_S)
        if code >= 500:
            raise NotSent(text, final=True)

    # -- IMAP --------------------------------------------------------------------------------------------------

    @contextmanager
    def _inbox(self) -> Iterator[imaplib.IMAP4]:
        """Open for reading; nothing in it is changed. Raises `Unreadable`, `NotAllowed`."""
        server, timeout = self._options.imap, self._options.timeout_s
        if server is None:
            raise NotAllowed(f"{self.name}: no `imap` is configured")
        try:
            if server.security == "tls":
                imap: imaplib.IMAP4 = imaplib.IMAP4_SSL(
                    server.host, server.port or 993, timeout=timeout, ssl_context=ssl.create_default_context()
                )
            else:
                imap = imaplib.IMAP4(server.host, server.port or 143, timeout=timeout)
        except ssl.SSLCertVerificationError as error:
            raise NotAllowed(f"{self.name}: {server.host} isn't trusted: {short(error)}") from None
        except (OSError, imaplib.IMAP4.error) as error:
            raise Unreadable(f"{self.name}: {server.host}: {short(error)}") from None
        try:
            if server.security == "starttls":
                imap.starttls(ssl.create_default_context())
            if server.password is not None:
                self._login(imap, server, server.password.value())
            status, _ = imap.select(f'"{self._options.mailbox}"', readonly=True)
            if status != "OK":
                raise NotAllowed(f"{self.name}: {server.host} has no mailbox {self._options.mailbox} for {server.user}")
            yield imap
        except (OSError, imaplib.IMAP4.error) as error:
            raise Unreadable(f"{self.name}: {server.host}: {short(error)}") from None
        finally:
            with suppress(Exception):
                imap.logout()

    def _login(self, imap: imaplib.IMAP4, server: Server, password: str) -> None:
        try:
            imap.login(server.user, password)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            raise NotAllowed(f"{self.name}: {server.host} doesn't let {server.user} in: {short(error)}") from None

    def _search(self, imap: imaplib.IMAP4, *criteria: str) -> list[str]:
        status, found = imap.uid("SEARCH", *criteria)
        if status != "OK":
            raise Unreadable(f"{self.name}: the mailbox can't be searched: {status}")
        return (found[0] or b"").decode("ascii", "replace").split()

    def _fetch(self, imap: imaplib.IMAP4, uid: str) -> bytes:
        status, parts = imap.uid("FETCH", uid, f"(BODY.PEEK[]<0.{MOST_BYTES}>)")
        found = [part[1] for part in parts if isinstance(part, tuple)]
        if status != "OK" or not found:
            raise Unreadable(f"{self.name}: letter {uid} can't be read")
        return bytes(found[0])

    # -- names -------------------------------------------------------------------------------------------------

    def _ref(self, key: str) -> TicketRef:
        return TicketRef(system=self.name, id=self._id(key))

    def _id(self, key: str) -> str:
        return mail_text.id_of(key, self._options.sender)


@contextmanager
def suppress_disconnect(smtp: smtplib.SMTP) -> Iterator[None]:
    yield
    with suppress(OSError, smtplib.SMTPException):
        smtp.quit()


def make(name: str, options: dict[str, Any]) -> MailTickets:
    return MailTickets(name, Options.model_validate(options))
