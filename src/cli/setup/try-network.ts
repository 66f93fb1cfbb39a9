import { toError } from "../../errors.ts";
import { READ_SOCKET } from "../../protocol/local/api.ts";
import { CommitReport } from "../../protocol/local/commit.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import { adminRequest, ask } from "../frame/client.ts";
import type { Call } from "../frame/verb.ts";

const MINUTES = 10;
const LOOK_EVERY_MS = 250;

/** Result of a network trial; `unchanged`: nothing to do. */
export type Tried = { readonly is: "kept" | "unchanged" } | { readonly is: "rolled-back"; readonly why: string };

/**
 * Applies a network on trial through the agent, and confirms or reverts it as `decide` returns. If this program ends early, the
 * agent reverts it at the end of the trial.
 */
export async function tryNetwork(
  call: Call,
  network: JsonObject,
  decide: (report: CommitReport) => Promise<"keep" | "revert">,
): Promise<Tried> {
  const since = call.clock.now();
  const settings = { ...call.settings, timeoutMs: (MINUTES + 1) * 60_000 };
  const trial = { ended: false, failure: undefined as Error | undefined };
  const trialRequest = ask(
    { ...call, settings },
    adminRequest("/v1/network/try", { network, minutes: MINUTES }),
    CommitReport,
  )
    .catch((error: unknown) => void (trial.failure = toError(error)))
    .finally(() => (trial.ended = true));
  const pending = await untilPending(call, trial, since);
  if (trial.failure !== undefined) throw trial.failure;
  if (pending?.pending === undefined) return outcomeOf(pending ?? (await readReport(call)), since);
  try {
    const decision = await decide(pending);
    await ask(call, adminRequest(`/v1/network/${decision}`, {}), CommitReport);
    await trialRequest;
    return decision === "keep" ? { is: "kept" } : { is: "rolled-back", why: "it was not kept" };
  } catch (error) {
    // The caller's signal is not used: after Ctrl-C the change is reverted too.
    const revert = { ...call, signal: AbortSignal.timeout(30_000) };
    await ask(revert, adminRequest("/v1/network/revert", {}), CommitReport).catch(() => undefined);
    throw error;
  }
}

function readReport(call: Call): Promise<CommitReport> {
  return ask(call, { method: "GET", path: "/v1/network/change", socket: READ_SOCKET }, CommitReport);
}

/** Returns the first report with a pending change, or the last report if the trial ends without one. */
async function untilPending(
  call: Call,
  trial: { readonly ended: boolean },
  since: number,
): Promise<CommitReport | undefined> {
  for (;;) {
    const isLast = trial.ended;
    const report = await readReport(call);
    // A trial of somebody else is left alone.
    const isOurs = report.pending?.isLocal === true && report.pending.since >= since;
    if (isOurs && report.pending?.state !== "applying") return report;
    if (isLast) return report;
    await call.clock.sleep(LOOK_EVERY_MS, call.signal);
  }
}

function outcomeOf({ lastTakenBack }: CommitReport, since: number): Tried {
  const isFresh = lastTakenBack !== undefined && lastTakenBack.at >= since;
  return isFresh ? { is: "rolled-back", why: lastTakenBack.evidence } : { is: "unchanged" };
}
