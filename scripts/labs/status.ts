// The lab at a glance: every host with its address, its programs, its node, and what is wrong with it on purpose.
import { CONTROLLER, nodesOf, privateAddressOf, siteOf } from "./layout.ts";
import type { Lab } from "./lab.ts";
import type { ProgramName } from "./programs.ts";
import type { LabState } from "./state.ts";

/** A line for each host. */
export async function statusText(lab: Lab): Promise<string> {
  const { layout } = lab.state;
  const online = await onlineNodes(lab);
  const others = layout.sites.flatMap(({ others }) => others.map(({ name }) => name));
  const lines = [CONTROLLER, ...nodesOf(layout), ...others].map((name) =>
    [
      name.padEnd(12),
      whereOf(lab, name).padEnd(38),
      (online?.get(name) ?? "").padEnd(9),
      programsOf(lab, name).padEnd(32),
      faultsOf(lab.state, name).join(", "),
    ]
      .join("")
      .trimEnd(),
  );
  return lines.join("\n");
}

/** Undefined when the controller does not answer. */
async function onlineNodes(lab: Lab): Promise<ReadonlyMap<string, string> | undefined> {
  if (lab.state.paused.includes(CONTROLLER) || lab.pidOf(CONTROLLER, "controller") === undefined) return undefined;
  return new Map((await lab.nodes()).map(({ name, online }) => [name, online ? "online" : "offline"]));
}

function whereOf(lab: Lab, name: string): string {
  const site = siteOf(lab.state.layout, name);
  if (site === undefined) return lab.addressOf(name);
  const inside = privateAddressOf(site, name);
  return site.edge === name ? `${inside} behind ${lab.addressOf(name)}` : `${inside} at ${site.name}`;
}

function programsOf(lab: Lab, name: string): string {
  const programs: readonly ProgramName[] = ["controller", "agent", "overlay"];
  const running = programs.flatMap((program) => {
    const pid = lab.pidOf(name, program);
    return pid === undefined ? [] : [`${program} ${pid}`];
  });
  return running.join(", ");
}

/** Returns the faults of a host, in the words of the verbs. */
export function faultsOf({ cut, paused, faults }: LabState, name: string): readonly string[] {
  const { lagMs, drop, isUdpBlocked } = faults[name] ?? {};
  return [
    ...(cut.includes(name) ? ["cut"] : []),
    ...(paused.includes(name) ? ["paused"] : []),
    ...(lagMs === undefined ? [] : [`lag ${lagMs} ms`]),
    ...(drop === undefined ? [] : [`drop ${drop.percent} % ${drop.direction}`]),
    ...(isUdpBlocked === true ? ["udp blocked"] : []),
  ];
}
