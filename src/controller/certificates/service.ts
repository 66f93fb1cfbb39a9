import { X509Certificate } from "node:crypto";
import { InputError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { EventLog, EventParts } from "../events/service.ts";
import { Violations } from "../http/problem.ts";
import type { MetaStore } from "../store/meta.ts";
import type { Transact } from "../store/transact.ts";
import { certificateInfo, checkCertificate, type CertificateParts } from "./pem.ts";
import type { CertificateInfo } from "./records.ts";
import type { CertificateStore } from "./store.ts";

/** Stores of an open transaction that changes certificates. */
export interface CertificateTransaction extends EventParts {
  readonly certificates: CertificateStore;
  readonly meta: Pick<MetaStore, "get" | "set">;
}

export interface CertificatesDeps {
  readonly store: Transact<CertificateTransaction> & { readonly certificates: CertificateStore };
  readonly events: Pick<EventLog, "change" | "record">;
  readonly clock: Clock;
  /** Certificate that the controller serves, in PEM, and its host; undefined without TLS. */
  readonly own?: { readonly cert: string; readonly host: string } | undefined;
}

/** Remaining time of the controller's own certificate at which it is reported; issuers of 90 days renew at 30. */
const OWN_EXPIRING_MS = 30 * 86_400_000;
const MAX_CERTIFICATES = 512;
const OWN_REPORTED = "own-certificate-reported";

/** Certificates of the organization. Their contents are never shown. Changes are recorded; they reject with `InputError`. */
export class Certificates {
  readonly #deps: CertificatesDeps;

  constructor(deps: CertificatesDeps) {
    this.#deps = deps;
  }

  async all(): Promise<readonly CertificateInfo[]> {
    const { store, clock } = this.#deps;
    return (await store.certificates.all()).map((one) => certificateInfo(one, clock.now()));
  }

  /** Stores a certificate, by default under its first DNS name. @throws {Violations}; with `isKnown` {InputError} `not-found` */
  async put(
    wanted: CertificateParts & { readonly fqdn: string | undefined },
    user: string,
    { isKnown = false } = {},
  ): Promise<CertificateInfo> {
    const { store, events, clock } = this.#deps;
    const { chain, name } = checkCertificate(wanted);
    const { fqdn = name, privateKey } = wanted;
    if (fqdn === undefined) throw new Violations(["fqdn: is required: the certificate has no DNS name"]);
    await store.transact(async (tx) => {
      const before = await tx.certificates.get(fqdn);
      if (isKnown && before === undefined) throw noCertificate(fqdn);
      if (before === undefined && (await tx.certificates.all()).length >= MAX_CERTIFICATES) {
        throw new Violations([`body: cannot add a certificate: the limit of ${MAX_CERTIFICATES} is reached`]);
      }
      await tx.certificates.put({ fqdn, chain, privateKey: privateKey.text, reported: "none" });
      const [what, action] = before === undefined ? (["added", "create"] as const) : (["replaced", "change"] as const);
      const item = { action, type: "certificate", id: fqdn } as const;
      await events.change(tx, undefined, user, `Certificate ${fqdn} ${what}`, item);
    });
    await this.report();
    return certificateInfo({ fqdn, chain }, clock.now());
  }

  /** @throws {InputError} `not-found` */
  async remove(fqdn: string, user: string): Promise<void> {
    const { store, events } = this.#deps;
    await store.transact(async (tx) => {
      if ((await tx.certificates.get(fqdn)) === undefined) throw noCertificate(fqdn);
      await tx.certificates.remove(fqdn);
      const item = { action: "delete", type: "certificate", id: fqdn } as const;
      await events.change(tx, undefined, user, `Certificate ${fqdn} removed`, item);
    });
  }

  /**
   * Raises `Certificate Expiring` once for each certificate that expires within 90 days, the controller's own within 30 days, and once more
   * when it has expired.
   */
  async report(): Promise<void> {
    await this.#reportOwn();
    const { store, events, clock } = this.#deps;
    const now = clock.now();
    for (const certificate of await store.certificates.all()) {
      const { fqdn, reported } = certificate;
      if (certificateInfo(certificate, now).warning === reported) continue;
      await store.transact(async (tx) => {
        const stored = await tx.certificates.get(fqdn);
        if (stored === undefined) return;
        const { warning, expiresAt } = certificateInfo(stored, now);
        if (warning === stored.reported) return;
        await tx.certificates.put({ ...stored, reported: warning });
        if (warning !== "expiring" && warning !== "expired") return;
        const isExpired = warning === "expired";
        await reportExpiry(tx, events, { what: `Certificate ${fqdn}`, fqdn, isExpired, expiresMs: expiresAt * 1000 });
      });
    }
  }

  async #reportOwn(): Promise<void> {
    const { store, events, clock, own } = this.#deps;
    if (own === undefined) return;
    const { cert, host: fqdn } = own;
    const { validToDate, fingerprint256 } = new X509Certificate(cert);
    const expiresMs = validToDate.getTime();
    const remainingMs = expiresMs - clock.now();
    if (remainingMs >= OWN_EXPIRING_MS) return;
    const isExpired = remainingMs <= 0;
    const mark = `${fingerprint256} ${isExpired ? "expired" : "expiring"}`;
    await store.transact(async (tx) => {
      if ((await tx.meta.get(OWN_REPORTED)) === mark) return;
      await tx.meta.set(OWN_REPORTED, mark);
      await reportExpiry(tx, events, { what: "The certificate of the controller", fqdn, isExpired, expiresMs });
    });
  }
}

async function reportExpiry(
  tx: EventParts,
  events: Pick<EventLog, "record">,
  { what, fqdn, isExpired, expiresMs }: { what: string; fqdn: string; isExpired: boolean; expiresMs: number },
): Promise<void> {
  await events.record(
    tx,
    { uid: "", name: fqdn, fqdn },
    {
      eventType: "Certificate Expiring",
      level: isExpired ? "ERROR" : "WARNING",
      message: `${what} ${isExpired ? "expired" : "expires"} at ${new Date(expiresMs).toISOString()}`,
      details: { fqdn, expiresAt: Math.floor(expiresMs / 1000) },
    },
  );
}

const noCertificate = (fqdn: string): InputError => new InputError("not-found", `there is no certificate ${fqdn}`);
