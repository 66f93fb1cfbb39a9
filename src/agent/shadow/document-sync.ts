import type { Logger } from "pino";
import { AgentError, InputError, SessionError, toError } from "../../errors.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import type { HttpClient } from "../../host/net/http-client.ts";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { DocumentName } from "../../protocol/documents/claims.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import { Jws } from "../../protocol/values/values.ts";
import { DOCUMENT_PATH } from "../../protocol/channel/envelope.ts";
import { KeysEnvelopes, walkKeysChain } from "../../protocol/channel/keys-chain.ts";
import type { DocumentApplied } from "../../protocol/channel/methods.ts";
import type { Connection, ControlPlaneRpc } from "../session/attempt.ts";
import type { Random } from "../../lib/async/backoff.ts";
import { retryDelay, type Ending } from "../session/backoff.ts";
import type { Fault } from "../faults/fault.ts";
import type { Registration, Trust } from "../identity/identity.ts";
import { RefusedDocument, type DesiredDocuments } from "./desired.ts";
import { ANSWER_MS, withinTime } from "../../lib/async/within-time.ts";

type Name = DocumentApplied["name"];
const NAMES: readonly Name[] = ["keys", ...DocumentName.options];
const POLL_MS = 600_000;
/** Codes of content that the control plane did not sign, or signed as another document. */
const FORGED: ReadonlySet<string> = new Set(["bad-signature", "invalid-claims"]);
const DOCUMENT_MAX_BYTES = 64 * 1024 * 1024;
/** A download that makes no progress for this long has failed. */
const STALL_MS = 15_000;
/** Time after which a requested document is overdue. */
const OVERDUE_MS = 30_000;
const KEYS_LIMITS = { maxBytes: 1024 * 1024, maxDepth: 8 };

export interface DocumentSyncOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly http: HttpClient;
  readonly documents: DesiredDocuments;
  readonly registration: () => Registration;
  /** Addresses that worked for the session. */
  readonly knownAddresses: () => readonly string[];
  readonly saveRegistration: (registration: Registration) => Promise<void>;
  readonly trust: () => Promise<Trust>;
  /** Applies an accepted document, or the removal of the cluster's document. */
  readonly onAccepted: (name: Name, version: number) => void;
  /** Reports a document that was refused, or that another key signed. Nothing changes. */
  readonly onRefused: (name: Name, version: number, error: AgentError) => void;
  /** Reports that two fetches in a row failed, or that one succeeded. */
  readonly onHealth: (isHealthy: boolean, why: string) => void;
  /** Called when a document becomes overdue, and when it is no longer. */
  readonly onOverdue: () => void;
}

/** A newer document that cannot be fetched. */
export interface OverdueDocument {
  readonly name: Name;
  /** Unix milliseconds. */
  readonly since: number;
  readonly cause: string;
}

/** Times in monotonic milliseconds. */
interface Wanted {
  readonly since: number;
  readonly overdueAt: number;
  /** Reason why the last attempt failed. */
  cause?: string;
}

interface Fetching {
  readonly name: Name;
  readonly abort: AbortController;
  /** The version that is downloaded; undefined until the control plane named one. */
  version?: number;
}

/** Fetches newer documents: at the start of each session, when the control plane reports a change, and every ten minutes. */
export class DocumentSync {
  readonly #options: DocumentSyncOptions;
  readonly #wall: WallTimes;
  readonly #due = new Set<Name>();
  readonly #refusedVersions = new Map<Name, number>();
  readonly #wanted = new Map<Name, Wanted>();
  #fetching: Fetching | undefined;
  /** Documents whose last download was cancelled for a newer version: the next download is completed, however often they change. */
  readonly #superseded = new Set<Name>();
  #cancelOverdue = (): void => undefined;
  #connection: Connection | undefined;
  #isRunning = false;
  #failures = 0;
  /** Until when the control plane asked for no requests; monotonic milliseconds. */
  #quietUntil = Number.NEGATIVE_INFINITY;
  #cancelTimer = (): void => undefined;

  constructor(options: DocumentSyncOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
  }

  /** Fetches every document whose version differs from the session's. */
  online(connection: Connection): void {
    this.#connection = connection;
    this.request(NAMES.filter((name) => connection.proof.versions[name] !== this.#have(name)));
    const quietMs = this.#quietUntil - this.#options.clock.elapsed();
    this.#schedule(quietMs > 0 ? quietMs : POLL_MS);
  }

  offline(): void {
    this.#connection = undefined;
    this.#cancelTimer();
  }

  /** Fetches these documents as soon as a session allows it. */
  request(names: readonly Name[]): void {
    for (const name of names) this.#due.add(name);
    if (this.#connection === undefined || this.#due.size === 0 || this.#isRunning) return;
    if (this.#options.clock.elapsed() >= this.#quietUntil) void this.#run(this.#connection);
  }

  /** Fetches a newer version. A download of an older one is cancelled. */
  changed(name: Name, version: number): void {
    this.request([name]);
    const fetching = this.#fetching;
    if (fetching?.name !== name || fetching.version === undefined || version <= fetching.version) return;
    if (this.#superseded.has(name)) return;
    this.#superseded.add(name);
    fetching.abort.abort(new SessionError("superseded", `the ${name} document: version ${version} is there`));
  }

  /** The documents that could not be fetched for 30 s. */
  get overdue(): readonly OverdueDocument[] {
    const now = this.#options.clock.elapsed();
    return [...this.#wanted].flatMap(([name, { since, overdueAt, cause }]) =>
      now >= overdueAt
        ? [{ name, since: this.#wall.of(since), cause: cause ?? "the control plane does not send it" }]
        : [],
    );
  }

  /** The faults of the overdue documents. */
  get faults(): readonly Fault[] {
    return this.overdue.map(({ name, since, cause }) => ({
      code: "document-unavailable",
      message: `the ${name} document cannot be fetched, and the previous version stays applied: ${cause}`.slice(
        0,
        1024,
      ),
      since,
    }));
  }

  /** The shadow facts about the overdue documents. */
  get facts(): ShadowMap {
    const facts: ShadowMap = {};
    for (const { name, since, cause } of this.overdue) {
      facts[`document.${name}.unavailable`] = cause.slice(0, 512);
      facts[`document.${name}.unavailable.since`] = Math.floor(since / 1000);
    }
    return facts;
  }

  /** Fetches a document again even if its version was refused, as after its floor was reset. */
  retry(name: Name): void {
    this.#refusedVersions.delete(name);
    this.request([name]);
  }

  /** Fetches newer keys over a session that is not authenticated yet; they prove themselves. Resolves to whether there were any. */
  async refreshKeys(rpc: ControlPlaneRpc, signal: AbortSignal): Promise<boolean> {
    const have = this.#have("keys");
    const answer = await rpc.request("document.get", { name: "keys", have }, withinTime(signal, ANSWER_MS));
    if ("unchanged" in answer) return false;
    // The peer is not authenticated, so its failures are neither remembered nor reported as the control plane's.
    await this.#acceptKeys(await this.#download("keys", answer.ticket, signal));
    if (this.#have("keys") === have) return false;
    this.#accepted("keys");
    return true;
  }

  #have(name: Name): number {
    return name === "keys"
      ? this.#options.registration().controlPlane.keys.version
      : this.#options.documents.newest(name);
  }

  async #run(connection: Connection): Promise<void> {
    this.#isRunning = true;
    const failed = new Map<Name, Error>();
    // In the order of NAMES: the keys verify the rest, and the node document names the cluster.
    for (let name = this.#next(); name !== undefined; name = this.#next()) {
      this.#due.delete(name);
      const fetching: Fetching = { name, abort: new AbortController() };
      this.#fetching = fetching;
      this.#want(name);
      try {
        await this.#fetch(fetching, connection.rpc, AbortSignal.any([connection.signal, fetching.abort.signal]));
        this.#had(name);
      } catch (error) {
        if (this.#isBeside(name, error)) {
          this.#had(name);
          continue;
        }
        if (fetching.abort.signal.aborted && !connection.signal.aborted) continue;
        failed.set(name, toError(error));
        // The end of the session is reported as such.
        if (!connection.signal.aborted) this.#want(name, toError(error).message);
        else if (this.#wanted.get(name)?.cause === undefined) this.#had(name);
        // Invalid content does not affect the other documents; a failed connection does.
        if (!(error instanceof InputError)) break;
      }
    }
    this.#isRunning = false;
    this.#fetching = undefined;
    const [error] = failed.values();
    if (error === undefined) {
      this.#failures = 0;
      this.#options.onHealth(true, "");
    } else {
      for (const name of failed.keys()) this.#due.add(name);
      if (this.#connection === connection) this.#failed(error);
    }
    // A session that opened meanwhile did not start a run of its own.
    if (this.#connection !== connection) this.request([]);
  }

  /** Notes since when a document is wanted, or why it could not be fetched. */
  #want(name: Name, cause?: string): void {
    const { clock } = this.#options;
    const wanted = this.#wanted.get(name);
    if (wanted === undefined) {
      this.#wanted.set(name, { since: clock.elapsed(), overdueAt: clock.elapsed() + OVERDUE_MS });
      this.#tellOverdue();
    } else if (cause !== undefined) {
      wanted.cause = cause;
    }
  }

  #had(name: Name): void {
    this.#superseded.delete(name);
    const wanted = this.#wanted.get(name);
    if (wanted === undefined) return;
    this.#wanted.delete(name);
    this.#tellOverdue();
    if (this.#options.clock.elapsed() >= wanted.overdueAt) this.#options.onOverdue();
  }

  #tellOverdue(): void {
    const { clock, onOverdue } = this.#options;
    this.#cancelOverdue();
    const now = clock.elapsed();
    const next = Math.min(...[...this.#wanted.values()].map(({ overdueAt }) => overdueAt).filter((at) => at > now));
    this.#cancelOverdue = Number.isFinite(next)
      ? clock.after(next - now, () => {
          onOverdue();
          this.#tellOverdue();
        })
      : () => undefined;
  }

  /** Reports whether a cluster document can be ignored: a node document that is rolled back may name a cluster that the node has left. */
  #isBeside(name: Name, error: unknown): boolean {
    if (name !== "cluster" || this.#options.documents.current.node?.refused === undefined) return false;
    const isBeside = error instanceof AgentError && (error.code === "rolled-back" || error.code === "not-found");
    if (isBeside) this.#options.log.info({ reason: error.message }, "cluster document left alone");
    return isBeside;
  }

  #failed(error: Error): void {
    this.#failures += 1;
    this.#options.log.warn({ reason: error.message, failures: this.#failures }, "documents could not be fetched");
    if (this.#failures >= 2) this.#options.onHealth(false, error.message);
    const asked = error instanceof SessionError ? error.details?.["retryAfterMs"] : undefined;
    const quietMs = typeof asked === "number" ? this.#delay({ kind: "asked-to-wait", delayMs: asked }) : 0;
    this.#quietUntil = this.#options.clock.elapsed() + quietMs;
    this.#schedule(Math.max(quietMs, this.#delay({ kind: "failed" })));
  }

  /** Uses the delays of sessions, since the whole fleet may have been refused at the same moment. */
  #delay(ending: Ending): number {
    return retryDelay({ ending, failures: this.#failures, offlineMs: 0 }, this.#options.random);
  }

  #next(): Name | undefined {
    return NAMES.find((name) => this.#due.has(name));
  }

  #schedule(ms: number): void {
    this.#cancelTimer();
    this.#cancelTimer = this.#options.clock.after(ms, () => {
      this.#quietUntil = Number.NEGATIVE_INFINITY;
      this.request(NAMES);
      this.#schedule(POLL_MS);
    });
  }

  async #fetch(fetching: Fetching, rpc: ControlPlaneRpc, signal: AbortSignal): Promise<void> {
    const { name } = fetching;
    const { documents } = this.#options;
    if (
      name === "cluster" &&
      documents.current.node !== undefined &&
      documents.current.node.body.cluster === undefined
    ) {
      if (documents.current.cluster === undefined) return;
      await documents.leaveCluster();
      this.#options.onAccepted("cluster", 0);
      return;
    }
    const answer = await rpc.request("document.get", { name, have: this.#have(name) }, withinTime(signal, ANSWER_MS));
    if ("unchanged" in answer || this.#refusedVersions.get(name) === answer.version) return;
    fetching.version = answer.version;
    const body = await this.#download(name, answer.ticket, signal);
    try {
      await this.#accept(name, body);
    } catch (error) {
      if (error instanceof RefusedDocument) {
        // Remembered until a newer one arrives, so that one bad document is not fetched indefinitely.
        this.#refusedVersions.set(name, error.version);
        this.#options.onRefused(name, error.version, error);
        return;
      }
      // An attacker on the path may have sent it, so it does not concern the version that was requested.
      if (error instanceof InputError && FORGED.has(error.code)) this.#options.onRefused(name, answer.version, error);
      throw error;
    }
    this.#accepted(name);
  }

  #accepted(name: Name): void {
    this.#refusedVersions.delete(name);
    const version = this.#have(name);
    this.#options.log.info({ document: name, version }, "document accepted");
    this.#options.onAccepted(name, version);
    // The node document names the cluster, so the cluster document is fetched again.
    if (name === "node") this.#due.add("cluster");
    if (name === "keys" || name === "node") this.#retryRefused();
  }

  async #accept(name: Name, body: string): Promise<void> {
    if (name === "keys") return this.#acceptKeys(body);
    if (!Jws.safeParse(body).success) throw new InputError("fetch-failed", `the ${name} document: not a JWS`);
    const { documents, trust, clock, log } = this.#options;
    await documents.accept(name, body, await trust(), clock.now());
    const passedOver = documents.current[name]?.passedOver ?? [];
    if (passedOver.length > 0)
      log.warn({ document: name, passedOver }, "this version does not know all of the document");
  }

  /** Fetches refused documents again: the keys or the node document may have been the reason. */
  #retryRefused(): void {
    for (const name of this.#refusedVersions.keys()) this.#due.add(name);
    this.#refusedVersions.clear();
  }

  async #download(name: Name, ticket: string, signal: AbortSignal): Promise<string> {
    const { controlPlane, node } = this.#options.registration();
    const { iss, keys } = controlPlane;
    const isSameHost = new URL(iss).hostname === new URL(node.session).hostname;
    const response = await this.#options.http.send(
      {
        url: `${iss}${DOCUMENT_PATH}`,
        method: "GET",
        headers: { "holdfast-ticket": ticket },
        pins: keys.spki,
        ...(isSameHost ? { knownAddresses: this.#options.knownAddresses() } : {}),
        maxBytes: name === "keys" ? KEYS_LIMITS.maxBytes : DOCUMENT_MAX_BYTES,
        timeoutMs: 120_000,
        stallMs: STALL_MS,
      },
      signal,
    );
    if (response.status === 200) return response.body;
    const { status, retryAfterMs } = response;
    const isAsked = (status === 429 || status === 503) && retryAfterMs !== undefined;
    const options = isAsked ? { details: { retryAfterMs } } : {};
    throw new SessionError("fetch-failed", `the ${name} document: HTTP ${status}`, options);
  }

  async #acceptKeys(body: string): Promise<void> {
    const registration = this.#options.registration();
    const parsed = KeysEnvelopes.safeParse(parseStrictJson(body, KEYS_LIMITS));
    if (!parsed.success) throw new InputError("fetch-failed", "the keys document: not a list of envelopes");
    const newest = await walkKeysChain(registration.controlPlane.keys, parsed.data);
    await this.#options.saveRegistration({
      ...registration,
      controlPlane: { ...registration.controlPlane, keys: newest },
    });
  }
}
