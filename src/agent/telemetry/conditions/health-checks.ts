import { isIP } from "node:net";
import type { Clock } from "../../../host/clock.ts";
import type { AskServer, ServerAnswer } from "../../../host/net/resolver.ts";
import type { EventLog } from "../events.ts";
import type { RepositoryAnswer } from "./repository-check.ts";

/** Last result of each check; undefined if unknown, and not reported. */
export interface HealthResults {
  readonly dns: DnsHealth | undefined;
  readonly repository: RepositoryAnswer | undefined;
  readonly isSshLocal: boolean | undefined;
}

export interface DnsHealth {
  /** True if at least one server resolves the name. */
  readonly isHealthy: boolean;
  /** In the order of the configuration; empty without any. */
  readonly servers: readonly { readonly server: string; readonly answer: ServerAnswer }[];
}

export interface DnsCheck {
  readonly name: string;
  readonly servers: () => readonly string[];
  readonly ask: AskServer;
  readonly clock: Clock;
}

export interface HealthCheckOptions {
  readonly clock: Clock;
  readonly events: EventLog;
  /** Host of the control plane. */
  readonly name: string;
  readonly servers: () => readonly string[];
  readonly ask: AskServer;
  readonly isSshLocal: () => boolean | undefined;
  /** Undefined without a configured repository. */
  readonly repository: ((signal: AbortSignal) => Promise<RepositoryAnswer>) | undefined;
  readonly onResults: (results: HealthResults) => void;
  readonly onError: (error: unknown) => void;
}

export interface HealthChecks {
  results(): HealthResults;
  /** Runs a check now, or joins a running one. */
  checkDns(): Promise<void>;
  checkRepository(): Promise<void>;
  checkSsh(): void;
  /** Runs the checks that have not begun: with a session the links are up. */
  sessionOpened(): void;
  close(): void;
}

const TRIES = 3;
const BETWEEN_TRIES_MS = 10_000;
/** Delay after the start without a session, since links and leases come up after a boot. */
const FIRST_CHECK_MS = 60_000;
const HOUR_MS = 3_600_000;
/** A failed check is repeated sooner, so that its end is noticed soon. */
const RECHECK_MS = 300_000;

/** Queries all servers for the name, up to three times 10 s apart until one resolves it; undefined if DNS is not used. */
export async function checkDns(check: DnsCheck, signal: AbortSignal): Promise<DnsHealth | undefined> {
  if (isIP(check.name) !== 0 || check.name === "localhost" || check.name.endsWith(".localhost")) return undefined;
  for (let attempt = 1; ; attempt += 1) {
    const servers = await Promise.all(
      check.servers().map(async (server) => ({ server, answer: await check.ask(server, check.name, signal) })),
    );
    const isHealthy = servers.some(({ answer }) => answer === "ok");
    if (isHealthy || attempt === TRIES) return { isHealthy, servers };
    await check.clock.sleep(BETWEEN_TRIES_MS, signal);
  }
}

/** Runs the checks on their schedule and raises and clears their events. */
export function startHealthChecks(options: HealthCheckOptions): HealthChecks {
  const { clock, events } = options;
  const stop = new AbortController();
  let results: HealthResults = { dns: undefined, repository: undefined, isSshLocal: undefined };

  function set(change: Partial<HealthResults>): void {
    results = { ...results, ...change };
    options.onResults(results);
  }

  const dns = repeating(options, stop.signal, HOUR_MS, async () => {
    const health = await checkDns(options, stop.signal);
    if (health !== undefined) announceDns(events, options.name, health);
    set({ dns: health });
    return health?.isHealthy ?? true;
  });

  const { repository } = options;
  const repo =
    repository === undefined
      ? undefined
      : repeating(options, stop.signal, 24 * HOUR_MS, async () => {
          const answer = await patiently(repository, clock, stop.signal);
          announceRepository(events, answer);
          set({ repository: answer });
          return answer === "ok";
        });

  function checkSsh(): void {
    const isSshLocal = options.isSshLocal();
    if (isSshLocal !== undefined) announceSsh(events, isSshLocal);
    set({ isSshLocal });
  }

  checkSsh();
  return {
    results: () => results,
    checkDns: () => dns.run(),
    checkRepository: async () => repo?.run(),
    checkSsh,
    sessionOpened() {
      for (const check of [dns, repo]) if (check?.hasBegun() === false) void check.run();
    },
    close: () => stop.abort(),
  };
}

/** Runs `check` a minute after the start and then periodically; `run` runs it at once, or joins a running one. */
function repeating(
  { clock, onError }: Pick<HealthCheckOptions, "clock" | "onError">,
  signal: AbortSignal,
  periodMs: number,
  check: () => Promise<boolean>,
): { readonly run: () => Promise<void>; readonly hasBegun: () => boolean } {
  let running: Promise<void> | undefined;
  let hasBegun = false;
  let cancel = (): void => {};
  const schedule = (ms: number): void => {
    cancel();
    if (!signal.aborted) cancel = clock.after(ms, () => void run());
  };
  const run = (): Promise<void> => {
    hasBegun = true;
    running ??= check()
      .then(
        (isHealthy) => schedule(isHealthy ? periodMs : RECHECK_MS),
        (error: unknown) => {
          if (!signal.aborted) onError(error);
          schedule(RECHECK_MS);
        },
      )
      .finally(() => {
        running = undefined;
      });
    return running;
  };
  signal.addEventListener("abort", () => cancel(), { once: true });
  schedule(FIRST_CHECK_MS);
  return { run, hasBegun: () => hasBegun };
}

async function patiently(
  ask: (signal: AbortSignal) => Promise<RepositoryAnswer>,
  clock: Clock,
  signal: AbortSignal,
): Promise<RepositoryAnswer> {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await ask(signal);
    if (answer === "ok" || attempt === TRIES) return answer;
    await clock.sleep(BETWEEN_TRIES_MS, signal);
  }
}

function announceDns(events: EventLog, name: string, { isHealthy, servers }: DnsHealth): void {
  const details = { name, servers: Object.fromEntries(servers.map(({ server, answer }) => [server, answer])) };
  const condition = { eventType: "DNS Resolution", object: "dns", details };
  if (isHealthy) events.clear({ ...condition, message: "DNS resolution re-established" });
  else events.raise({ ...condition, level: "ERROR", message: "DNS resolution failed" });
}

function announceRepository(events: EventLog, answer: RepositoryAnswer): void {
  const condition = { eventType: "Repo Connectivity", object: "repository", details: { answer } };
  if (answer === "ok") events.clear({ ...condition, message: "Repo connectivity re-established" });
  else events.raise({ ...condition, level: "ERROR", message: "Repo connectivity failed" });
}

function announceSsh(events: EventLog, isLocal: boolean): void {
  const condition = { eventType: "SSH Lockdown", object: "sshd" };
  if (isLocal) events.clear({ ...condition, message: "SSH listens locally only" });
  else events.raise({ ...condition, level: "ERROR", message: "SSH is reachable on an address that is not local" });
}
