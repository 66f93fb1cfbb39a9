import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { layOut, type Style } from "../../frame/terminal.ts";
import { COMMON } from "../../frame/verb-options.ts";
import type { Call, Verb } from "../../frame/verb.ts";
import { checkNetwork } from "../../netcheck/netcheck.ts";
import { CheckName, NetworkReport, type NetworkCheck } from "../../netcheck/result.ts";
import { pathName } from "../../text/mesh-text.ts";

export const netcheckVerb: Verb = {
  name: "netcheck",
  summary: "check the path to the control plane and to each gateway, and show what to do",
  about:
    "Checks names, TCP, TLS with the expected key, proxy, captive portal, clock and MTU; each passes, fails or is skipped. Needs root. " +
    "Without an agent, checks by its state on disk.",
  arguments: [],
  options: COMMON,
  exits: ["ok", "failed", "usage", "unreachable", "unregistered", "degraded", "timeout", "interrupted"],
  example: "holdfast netcheck",
  output: NetworkReport,
  async run(call) {
    const { isRegistered, checks } = await checkNetwork(call);
    const verdict = checks.some(({ status }) => status === "fail") ? "fail" : "pass";
    const report: NetworkReport = { schema: 1, verdict, checks: [...checks] };
    call.terminal.out(call.settings.isJson ? `${safeJson(report)}\n` : reportText(call, report));
    if (!isRegistered) return "unregistered";
    return verdict === "pass" ? "ok" : "degraded";
  },
};

/** Width of the first column, so that all groups align. */
const LONGEST_NAME = Math.max(...CheckName.options.map(({ length }) => length));

const STYLES: Readonly<Record<NetworkCheck["status"], Style>> = { pass: "green", fail: "red", skip: "dim" };

function reportText({ terminal }: Call, untrusted: NetworkReport): string {
  const { checks } = plainValue(untrusted);
  const groups = new Map<string, NetworkCheck[]>();
  for (const check of checks) {
    const title = titleOf(check);
    const group = groups.get(title);
    if (group === undefined) groups.set(title, [check]);
    else group.push(check);
  }
  const { columns } = terminal.size();
  const failures = checks.filter(({ status }) => status === "fail").length;
  const verdict = failures === 0 ? "no check failed" : `${failures} of ${checks.length} checks failed`;
  const rowsOf = ({ status, check, message, fix }: NetworkCheck): (readonly [string, string])[] => [
    [`  ${terminal.style(STYLES[status], status.toUpperCase())} ${check.padEnd(LONGEST_NAME)}`, message],
    ...(fix === undefined ? [] : [["", terminal.style("bold", `fix: ${fix}`)] as const]),
  ];
  const parts = [...groups].map(
    ([title, group]) => `${terminal.style("bold", title)}\n${layOut(group.flatMap(rowsOf), columns)}`,
  );
  return `${parts.join("")}${verdict}\n`;
}

function titleOf({ target, name, path }: NetworkCheck): string {
  switch (target) {
    case "node":
      return "this node";
    case "control-plane":
      return `control plane ${name}`.trimEnd();
    case "gateway":
      return `gateway ${name} ${pathName(path ?? "")}`;
  }
}
