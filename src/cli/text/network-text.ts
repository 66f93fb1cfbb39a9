import { formatDuration, formatMoment } from "../../lib/text/durations.ts";
import type { CommitReport, PendingChange, RolledBackChange } from "../../protocol/local/commit.ts";
import { layOut, type Paint } from "../frame/terminal.ts";

/** Formats the state of network changes; times are relative to `now` (Unix milliseconds). */
export function networkText(report: CommitReport, now: number, columns: number, paint: Paint): string {
  const { pending, lastTakenBack, kept } = report;
  const rows: (readonly [string, string])[] = [];
  if (pending === undefined) rows.push(["pending", "nothing"]);
  else {
    rows.push(["pending", pendingText(pending, paint)], ["what", whatText(pending)]);
    for (const line of pending.unreached) rows.push(["not reached", paint("red", line)]);
  }
  if (kept !== undefined) {
    const what = "confirmed on this machine; applies until a restart or until the control plane changes the network";
    rows.push(["kept", `${formatMoment(kept.since, now)}: ${what}`]);
  }
  if (lastTakenBack !== undefined) rows.push(...rollbackRows(lastTakenBack, now, paint));
  return layOut(rows, columns);
}

/** Formats a pending change as one line: its progress and remaining time. */
export function pendingText({ mode, state, secondsLeft }: PendingChange, paint: Paint): string {
  const left = formatDuration(secondsLeft * 1000);
  const name = mode === "try" ? "trial" : "change";
  switch (state) {
    case "applying":
      return `${paint("yellow", name)} is being applied, ${left} left`;
    case "proving":
      return `${paint("yellow", name)} is being proven, ${left} left before it is reverted`;
    case "awaiting-keep":
      return `${paint("yellow", name)} is proven, ${left} left: 'holdfast network keep' keeps it`;
  }
}

function whatText({ isLocal, versions, before }: PendingChange): string {
  const { session, gateways } = before;
  const whose = isLocal ? "of this machine" : versionsText(versions);
  const gateway = gateways === 0 ? "" : gateways === 1 ? " and the gateway" : ` and one of ${gateways} gateways`;
  const proof = session
    ? `must reach the control plane${gateway} again`
    : "there was no session: only keeping it, or a session, confirms";
  return `${whose}; ${proof}`;
}

function rollbackRows(last: RolledBackChange, now: number, paint: Paint): (readonly [string, string])[] {
  const { at, by, code, evidence, step, isLocal, versions, failed } = last;
  const whose = isLocal ? "of this machine" : versionsText(versions);
  const rows: (readonly [string, string])[] = [
    ["reverted", `${formatMoment(at, now)} by the ${by}: ${whose}, ${NEXT[last.is]}`],
    ["  why", `${paint("yellow", code)} ${evidence}`],
  ];
  if (step !== undefined) rows.push(["  step", `${step.kind} ${step.subject}`]);
  for (const line of failed) rows.push(["  not restored", paint("red", line)]);
  return rows;
}

const NEXT: Readonly<Record<RolledBackChange["is"], string>> = {
  waiting: "tried again when the control plane is reached",
  refused: "not tried again until it is changed",
  over: "something else is in force since",
};

function versionsText(versions: PendingChange["versions"]): string {
  const parts = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return parts.length === 0 ? "of no document" : parts.join(", ");
}
