import { HostError } from "../../errors.ts";
import type { Conntrack, FlowFilter } from "../network/conntrack.ts";
import { Firewall } from "../network/firewall/firewall.ts";
import { kernelTables, type KernelTables } from "../network/firewall/table-dump.ts";
import type { FirewallState } from "../network/state/state.ts";
import { refusal, type ToolRunner } from "../network/ip/tool.ts";
import type { ExposureRecord } from "./record.ts";
import { addRoute, addRule, ContainerRouting, deleteRoute, deleteRule, type RoutingState } from "./routing.ts";
import { UserChain, type UserRule } from "./user-chain.ts";

/** The nftables table for containers; the section `network` has its own. */
const EXPOSURE_TABLE = "holdfast_containers";

/** The current state of ports and routes of containers on this machine. */
export interface ExposureState extends RoutingState {
  /** Reason why this machine's firewall is unusable, so that the engine must publish ports itself. */
  readonly unusable: string | undefined;
  /** Reason why links cannot be added to containers; undefined until one was refused. */
  readonly closed: string | undefined;
  readonly firewall: FirewallState | undefined;
  /** Our rules in the engine's chain; undefined if the chain does not exist. */
  readonly userRules: readonly UserRule[] | undefined;
  /** The loaded mappings, by their names at loading. */
  readonly mapped: readonly string[];
  /** Whether the engine may have one of our networks. */
  readonly hasNetwork: boolean;
}

/** A veth pair with one end on the host and one in a container. */
export interface VirtualLink {
  /** Interface name of the host's end: `hfc` and twelve hex digits. */
  readonly link: string;
  readonly engineId: string;
  /** Interface name of the container's end, and its address if it has one. */
  readonly inside: string;
  readonly address: string | undefined;
  /** The route to it, added once it exists. */
  readonly route: string;
}

export type ExposureChange =
  /** The complete table (undefined removes it), the rules in the engine's chain, and flows that the change must end. */
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
   * Reads the wanted state and any state that may be ours; starts no process otherwise.
   * @throws {HostError} errors of nft, iptables and ip.
   */
  observe(wanted: { readonly ports: boolean; readonly routing: boolean }, signal: AbortSignal): Promise<ExposureState>;
  /** Applies one change; can be repeated. `pidOf` returns the process id of a container. */
  apply(
    change: ExposureChange,
    pidOf: (engineId: string, signal: AbortSignal) => Promise<number | undefined>,
    signal: AbortSignal,
  ): Promise<void>;
}

export interface ExposureDriverOptions {
  readonly tools: ToolRunner;
  /** Runs tools that enter a container; `tools` by default. */
  readonly inside?: ToolRunner;
  readonly record: ExposureRecord;
  readonly conntrack: Pick<Conntrack, "remove">;
  /** The kernel's tables by default. */
  readonly tables?: KernelTables;
}

const NO_ROUTING: RoutingState = { rules: [], routes: [], links: [] };

/** Returns a driver of nft(8), iptables(8) and ip(8) for containers. */
export function exposureDriver(options: ExposureDriverOptions): ExposureDriver {
  const { tools, inside: enterer = tools, record, conntrack } = options;
  const firewall = new Firewall(tools, record, options.tables ?? kernelTables, EXPOSURE_TABLE);
  const chain = new UserChain(tools);
  const routing = new ContainerRouting(tools);
  let tried: { readonly unusable: string | undefined } | undefined;
  let closed: string | undefined;

  /** Tries the firewall once, so that containers are not recreated for a firewall that comes and goes. */
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
    // Accept rules are added before traffic is sent that way, and removed after it.
    if (change.text !== undefined) await chain.set(change.userRules, signal);
    await firewall.load(change.text, signal);
    if (change.text === undefined) await chain.set(change.userRules, signal);
    await record.change({ mapped: [...change.mapped] });
    for (const flows of change.ended) {
      // Without conntrack(8), flows to the old destination end by themselves.
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
      // A partial link would pass for a complete one.
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
          // Routes come first: a rule whose table is empty has no effect.
          const lines = [...added.routes.map(addRoute), ...added.rules.map(addRule)];
          await routing.run(lines, signal);
          await routing.run([...removed.rules.map(deleteRule), ...removed.routes.map(deleteRoute)], signal);
          return;
        }
        case "attach": {
          const pid = await pidOf(change.virtual.engineId, signal);
          // A container that has exited gets its links when it starts again.
          if (pid !== undefined && pid > 0) await attach(change.virtual, pid, signal);
          return;
        }
        case "detach":
          return routing.run([`link delete ${change.link}`], signal);
      }
    },
  };
}
