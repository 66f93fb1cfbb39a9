import { HostError } from "../../errors.ts";
import type { Conntrack, FlowFilter } from "../network/conntrack.ts";
import { Firewall } from "../network/firewall/firewall.ts";
import { kernelTables, type KernelTables } from "../network/firewall/table-dump.ts";
import type { FirewallState } from "../network/state/state.ts";
import { refusal, type ToolRunner } from "../network/ip/tool.ts";
import type { ExposureRecord } from "./record.ts";
import { addRoute, addRule, ContainerRouting, deleteRoute, deleteRule, type RoutingState } from "./routing.ts";
import { UserChain, type UserRule } from "./user-chain.ts";

/** The table of nftables for containers; the section `network` has one of its own. */
export const EXPOSURE_TABLE = "holdfast_containers";

/** How containers of this node are reached, as the machine has it now. */
export interface ExposureState extends RoutingState {
  /** Why this machine's firewall may not be touched, so that the engine has to publish ports itself. */
  readonly unusable: string | undefined;
  /** Why no link can be put into a container; undefined as long as none was refused. */
  readonly closed: string | undefined;
  readonly firewall: FirewallState | undefined;
  /** Undefined where the engine has no chain for them. */
  readonly userRules: readonly UserRule[] | undefined;
  /** The mappings in force, as they were named when they were loaded. */
  readonly mapped: readonly string[];
  /** The engine may have a network of ours. */
  readonly hasNetwork: boolean;
}

/** A pair of links, one end here and one in a container. */
export interface VirtualLink {
  /** Our end: `hfc` and twelve hex digits. */
  readonly link: string;
  readonly engineId: string;
  /** The container's end, and its address there when it gets one. */
  readonly inside: string;
  readonly address: string | undefined;
  /** What leads to it, once it is there. */
  readonly route: string;
}

export type ExposureChange =
  /** The whole table (none: it goes), the rules in the engine's chain, and flows that the change has to end. */
  | {
      readonly is: "ports";
      readonly text: string | undefined;
      readonly userRules: readonly UserRule[];
      readonly mapped: readonly string[];
      readonly ended: readonly FlowFilter[];
    }
  | {
      readonly is: "routing";
      readonly added: Pick<RoutingState, "rules" | "routes">;
      readonly removed: Pick<RoutingState, "rules" | "routes">;
    }
  | { readonly is: "attach"; readonly virtual: VirtualLink }
  | { readonly is: "detach"; readonly link: string };

export interface ExposureDriver {
  /**
   * Looks at what is wanted and at what may be ours; starts no process for what is neither.
   * @throws {HostError} of nft, iptables and ip.
   */
  observe(wanted: { readonly ports: boolean; readonly routing: boolean }, signal: AbortSignal): Promise<ExposureState>;
  /** Carries out one change; safe to repeat. `pidOf` says the process of a container. */
  apply(
    change: ExposureChange,
    pidOf: (engineId: string, signal: AbortSignal) => Promise<number | undefined>,
    signal: AbortSignal,
  ): Promise<void>;
}

export interface ExposureDriverOptions {
  readonly tools: ToolRunner;
  /** Runs what enters a container; by default `tools`. */
  readonly inside?: ToolRunner;
  readonly record: ExposureRecord;
  readonly conntrack: Pick<Conntrack, "remove">;
  /** By default from the kernel itself. */
  readonly tables?: KernelTables;
}

const NO_ROUTING: RoutingState = { rules: [], routes: [], links: [] };

/** Drives nft(8), iptables(8) and ip(8) for containers. */
export function exposureDriver(options: ExposureDriverOptions): ExposureDriver {
  const { tools, inside: enterer = tools, record, conntrack } = options;
  const firewall = new Firewall(tools, record, options.tables ?? kernelTables, EXPOSURE_TABLE);
  const chain = new UserChain(tools);
  const routing = new ContainerRouting(tools);
  let tried: { readonly unusable: string | undefined } | undefined;
  let closed: string | undefined;

  /** Asked once: a container is not made anew for a firewall that comes and goes. */
  async function tryFirewall(signal: AbortSignal): Promise<string | undefined> {
    tried ??= { unusable: await refusalOf(signal) };
    return tried.unusable;
  }

  async function refusalOf(signal: AbortSignal): Promise<string | undefined> {
    try {
      const checked = await tools.run("nft", ["-c", "-f", "-"], signal, `add table inet ${EXPOSURE_TABLE}\n`);
      return checked.exitCode === 0 ? undefined : refusal("nft-refused", "nft", checked).message;
    } catch (error) {
      if (error instanceof HostError && error.code === "tool-missing") return error.message;
      throw error;
    }
  }

  async function setPorts(change: Extract<ExposureChange, { is: "ports" }>, signal: AbortSignal): Promise<void> {
    await record.change({ hasFirewall: true });
    // What lets packets pass is there before anything is sent that way, and goes after it.
    if (change.text !== undefined) await chain.set(change.userRules, signal);
    await firewall.load(change.text, signal);
    if (change.text === undefined) await chain.set(change.userRules, signal);
    await record.change({ mapped: [...change.mapped] });
    for (const flows of change.ended) {
      // What goes on with its old destination ends in its own time where conntrack(8) is missing.
      await conntrack.remove(flows, signal).catch(() => signal.throwIfAborted());
    }
  }

  async function attach({ link, inside, address, route }: VirtualLink, pid: number, signal: AbortSignal) {
    const enter = ["-t", String(pid), "-n", "--"];
    const tried = await enterer.run("nsenter", [...enter, "true"], signal).catch((error: unknown) => {
      if (error instanceof HostError && error.code === "tool-missing") return error.message;
      throw error;
    });
    if (typeof tried === "string" || tried.exitCode !== 0) {
      closed = typeof tried === "string" ? tried : refusal("nsenter-failed", "nsenter", tried).message;
      return;
    }
    const peer = `${link.slice(0, 14)}p`;
    await record.change({ hasRouting: true });
    await routing.run([`link add ${link} type veth peer name ${peer}`, `link set ${peer} netns ${pid}`], signal);
    try {
      const lines = [
        `link set ${peer} name ${inside}`,
        ...(address === undefined ? [] : [`address add ${address}/32 dev ${inside}`]),
        `link set ${inside} up`,
      ];
      const done = await enterer.run("nsenter", [...enter, "ip", "-batch", "-"], signal, [...lines, ""].join("\n"));
      if (done.exitCode !== 0) throw refusal("ip-failed", "ip", done);
      await routing.run([`link set ${link} up`, addRoute(route)], signal);
    } catch (error) {
      // Half of it would count as all of it.
      await routing.run([`link delete ${link}`], signal).catch(() => undefined);
      throw error;
    }
  }

  return {
    async observe(wanted, signal) {
      const { hasFirewall, hasRouting, mapped, hasNetwork } = await record.content();
      const unusable = wanted.ports ? await tryFirewall(signal) : undefined;
      const looksAtPorts = unusable === undefined && (wanted.ports || hasFirewall);
      const looksAtRouting = wanted.routing || hasRouting;
      const looks = [
        looksAtPorts ? firewall.observe(signal) : Promise.resolve(undefined),
        looksAtPorts ? chain.observe(signal) : Promise.resolve(undefined),
        looksAtRouting ? routing.observe(signal) : Promise.resolve(NO_ROUTING),
      ] as const;
      await Promise.allSettled(looks);
      const [table, userRules, routes] = await Promise.all(looks);
      const isBare = routes.rules.length + routes.routes.length + routes.links.length === 0;
      const isClosed = table === undefined && (userRules ?? []).length === 0;
      await record.change({
        ...(looksAtPorts && !wanted.ports && isClosed ? { hasFirewall: false, mapped: [] } : {}),
        ...(!wanted.routing && isBare ? { hasRouting: false } : {}),
      });
      return { ...routes, unusable, closed, firewall: table, userRules, mapped, hasNetwork };
    },
    async apply(change, pidOf, signal) {
      switch (change.is) {
        case "ports":
          return setPorts(change, signal);
        case "routing": {
          const { added, removed } = change;
          await record.change({ hasRouting: true });
          // Routes first: a rule that leads nowhere lets nothing pass.
          const lines = [...added.routes.map(addRoute), ...added.rules.map(addRule)];
          await routing.run(lines, signal);
          await routing.run([...removed.rules.map(deleteRule), ...removed.routes.map(deleteRoute)], signal);
          return;
        }
        case "attach": {
          const pid = await pidOf(change.virtual.engineId, signal);
          // One that has ended meanwhile gets its links when it starts again.
          if (pid !== undefined && pid > 0) await attach(change.virtual, pid, signal);
          return;
        }
        case "detach":
          return routing.run([`link delete ${change.link}`], signal);
      }
    },
  };
}
