"""What ``bisector doctor`` says of letters."""

from bisector.config import MailSettings
from bisector.core.errors import UserError
from bisector.core.findings import Finding, Grade
from bisector.mail import login

_ROW = "mail"


def server(mail: MailSettings) -> Finding:
    """Whether a report could be sent, by the settings alone: nobody is asked, no password is told."""
    if not mail.host:
        return Finding(_ROW, Grade.INFO, "mail.host is not set: reports stay drafts, which git send-email can send")
    try:
        found = login.find(mail.login_file)
    except UserError as error:
        return Finding(_ROW, Grade.WARN, error.message, error.hint)
    who = f"login as {found.username}" if found else "without a login"
    return Finding(_ROW, Grade.OK, f"{mail.host}:{mail.port}, {mail.security}, {who}; sends nothing by itself")
