import type { z } from "zod";
import type { Exec } from "../../../host/process/exec.ts";
import type { Files } from "../../../host/files/files.ts";
import { TgTracerouteBody } from "../../../protocol/triggers/bodies.ts";
import { needLink } from "../tools/known-link.ts";
import { flagList, numberFlag, plainFlags, type AllowedFlags } from "../tools/tool-flags.ts";
import type { StreamTrigger } from "../execution/trigger.ts";
import { traceTunnel } from "./tunnel-trace.ts";
import { findPeer, neededPeer, takenForHost, type Tunnels } from "./tunnels.ts";

const FLAGS: AllowedFlags = new Map([
  ...plainFlags("-n", "-4", "-6", "-I", "-T", "-U", "-F"),
  numberFlag("-p", 1, 65_535),
  numberFlag("-m", 1, 64),
  numberFlag("-q", 1, 10),
  numberFlag("-w", 1, 10),
  numberFlag("-f", 1, 64),
  numberFlag("-N", 1, 64),
  numberFlag("-z", 0, 1000),
  ["-s", { takes: "address" }],
]);

export const TgTraceroute = TgTracerouteBody.extend({ filter: flagList(FLAGS).prefault("-n") });
export type TgTraceroute = z.infer<typeof TgTraceroute>;

/** Traces the route to a host with traceroute(8) and its harmless flags; to a peer, without `iface`, through the tunnel. */
export function tgTraceroute(exec: Exec, files: Files, tunnels: Tunnels): StreamTrigger<TgTraceroute> {
  return {
    event: "tg-traceroute",
    kind: "stream",
    request: TgTraceroute,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    async handle({ host, filter, iface }, { signal, emit }) {
      if (iface === undefined && findPeer(tunnels.nodes(), host) !== undefined) {
        const peer = neededPeer(tunnels.nodes(), host);
        for await (const data of traceTunnel(tunnels, peer, valueOf(filter, "-q"), signal)) {
          await emit({ kind: "stdout", data });
        }
        return { exitCode: 0 };
      }
      if (iface !== undefined) await needLink(files, iface, "iface");
      const taken = iface === undefined ? takenForHost(tunnels.nodes(), host) : undefined;
      if (taken !== undefined) await emit({ kind: "stdout", data: `${taken}\n` });
      const link = iface === undefined ? [] : ["-i", iface];
      const trace = exec.spawn("traceroute", [...link, ...filter, "--", host], { signal });
      for await (const chunk of trace.output) await emit(chunk);
      return { exitCode: await trace.exitCode };
    },
  };
}

/** Returns the number after a flag, if the flag is present. */
function valueOf(flags: readonly string[], flag: string): number | undefined {
  const at = flags.indexOf(flag);
  return at < 0 ? undefined : Number(flags[at + 1]);
}
