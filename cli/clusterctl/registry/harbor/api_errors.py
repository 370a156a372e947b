"""What ends a command that talks to Harbor, said in a sentence with a place and a way out."""

from __future__ import annotations

from clusterctl.errors import EXIT_CLUSTER_BAD, EXIT_USAGE, ClusterctlError
from clusterctl.registry.oci.errors import words_of

# Harbor's own words for whoever writes while it is being backed up.
READ_ONLY = "read only mode"


def of_certificate(error: BaseException) -> bool:
    """Whether it is the certificate that keeps us out."""
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def unreachable(url: str, what: str, error: Exception) -> ClusterctlError:
    """Harbor did not answer, or showed a certificate that is none for us."""
    words = words_of(error)
    if of_certificate(error):
        return ClusterctlError(
            f"Harbor's certificate is not one that is trusted here: {words}",
            code="registry.api-certificate",
            where=url,
            hint="Set registry_api_ca_file to the authority that signed it; renew an expired one.",
            exit_code=EXIT_CLUSTER_BAD,
        )
    return ClusterctlError(
        f"Harbor does not answer ({what}): {words}",
        code="registry.api-unreachable",
        where=url,
        hint="Is it up, and the way there open? What was done is done; run it again to continue.",
        exit_code=EXIT_CLUSTER_BAD,
    )


def denied(url: str, user: str, what: str, sentence: str) -> ClusterctlError:
    """The user or the password is not one that Harbor serves."""
    return ClusterctlError(
        f"Harbor refuses {user} ({what}): {sentence}",
        code="registry.api-denied",
        where=url,
        hint="Check registry_api_user and registry_api_password_file; it must be a system administrator.",
        exit_code=EXIT_USAGE,
    )


def read_only(url: str) -> ClusterctlError:
    """Nothing can be changed now."""
    return ClusterctlError(
        "Harbor is in read-only mode, so nothing can be changed",
        code="registry.read-only",
        where=url,
        hint="A backup may be running. If none is, switch it back in Harbor's system settings.",
        exit_code=EXIT_CLUSTER_BAD,
    )
