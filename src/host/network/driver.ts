import { setImmediate } from "node:timers/promises";
import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import type { Exec } from "../process/exec.ts";
import type { OnDamage } from "../files/damage.ts";
import type { Files } from "../files/files.ts";
import type { Reader } from "../reader.ts";
import { addressMark, kernelAddressMarks, type AddressMarks } from "./ip/address-marks.ts";
import type { Change } from "./change.ts";
import type { DhcpClient } from "./dhcp/dhcp-client.ts";
import { DhcpClients } from "./dhcp/dhcp.ts";
import { privilegedExec } from "../process/privileged-exec.ts";
import { refusedLines, tryFeatures, type NetworkFeatures } from "./features.ts";
import { Firewall } from "./firewall/firewall.ts";
import { parseNeighbours, parseShown, SHOW_ALL, type IpOutput } from "./ip/ip-output.ts";
import { NetworkLedger, type LedgerContent } from "./state/ledger.ts";
import { LinkSpeed } from "./link-speed.ts";
import { LookAhead, watchChanges, type WatchChanges } from "./firewall/look-ahead.ts";
import { addressLabel, addressOfLine } from "./ip/lines.ts";
import { RESOLVER_FILES } from "../net/resolver.ts";
import { NameServers } from "./resolver/name-servers.ts";
import { resolverFile } from "./resolver/resolver-file.ts";
import { OUR_PROTOCOL, type AddressState, type NeighbourState, type NetworkState } from "./state/state.ts";
import { kernelTables, type KernelTables } from "./firewall/table-dump.ts";
import { readSysctls, writeSysctl } from "./ip/sysctls.ts";
import { refusal, toolRunner } from "./ip/tool.ts";

/** The network of the machine, in this process's network namespace. */
export interface NetworkDriver {
  /** What the machine can do; tried once, in a scratch namespace. */
  features(signal: AbortSignal): Promise<NetworkFeatures>;
  /**
   * Reads everything, in one process; in two where the kernel cannot be asked for the firewall. What `ip` shows was read beside the last
   * load of the firewall, if the kernel has told of no change since.
   * @throws {HostError} `tool-missing` without ip(8), `bad-output`, `too-much-output`, or what the tools refuse.
   */
  observe(wanted: { readonly sysctls: Iterable<string> }, signal: AbortSignal): Promise<NetworkState>;
  /** IPv4 neighbours, as the kernel knows them. */
  observeNeighbours(signal: AbortSignal): Promise<readonly NeighbourState[]>;
  /**
   * Carries out one change.
   * @throws {HostError} naming what failed; of lines for ip those before it are in force (`details.line` counts from 1).
   */
  apply(change: Change, signal: AbortSignal): Promise<void>;
  /** Whether anything may be ours: without, there is nothing to observe when nothing is wanted. Starts no process. */
  mayOwn(): Promise<boolean>;
  /** Notes that nothing is ours any more. The next change takes it back. */
  disown(): Promise<void>;
}

export interface NetworkDriverOptions {
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly clock: Clock;
  /** Keeps `network.json` and the files of DHCP clients. */
  readonly stateDir: string;
  /** Keeps what ends with this start of the machine. */
  readonly runDir: string;
  /** Whether systemd runs this program. */
  readonly isManaged: boolean;
  readonly onDamage?: OnDamage;
  /** By default `/etc/resolv.conf`. */
  readonly resolverPath?: string;
  /** By default all that can be driven. */
  readonly dhcpClients?: readonly DhcpClient[];
  /** By default from the kernel itself. */
  readonly tables?: KernelTables;
  /** By default the kernel's. */
  readonly addressMarks?: AddressMarks;
  /** By default told by the kernel. */
  readonly watchChanges?: WatchChanges;
  /** Of one tool. */
  readonly maxOutputBytes?: number;
}

/** Drives ip(8), nft(8), ethtool(8), a DHCP client and the resolver. */
export function networkDriver(options: NetworkDriverOptions): NetworkDriver {
  const { exec, files, reader, stateDir } = options;
  const tools = toolRunner(exec, options.maxOutputBytes);
  const ledger = new NetworkLedger(files, reader, stateDir, options.onDamage);
  const firewall = new Firewall(tools, ledger, options.tables ?? kernelTables);
  const speed = new LinkSpeed(tools, reader, ledger);
  const { clock, runDir, isManaged, dhcpClients: clients, resolverPath: path = RESOLVER_FILES[0] } = options;
  const changeFile = resolverFile(exec, path, isManaged);
  const nameServers = new NameServers({ tools, reader, ledger, path, changeFile });
  const base = { tools, files, reader, clock, stateDir, runDir, isManaged };
  const dhcp = new DhcpClients(clients === undefined ? base : { ...base, clients });
  let features: NetworkFeatures | undefined;
  /** As they were seen last: what is gone from the machine need not stay in the ledger. */
  let addresses: readonly AddressState[] | undefined;
  let hasLooked = false;
  const marks = options.addressMarks ?? kernelAddressMarks;
  const ahead = new LookAhead<IpOutput>(options.watchChanges ?? watchChanges);

  const showAll = async ({ addresses: unmarked }: LedgerContent, signal: AbortSignal): Promise<IpOutput> => {
    const shown = await tools.run("ip", ["-4", "-N", "-json", "-details", "-batch", "-"], signal, SHOW_ALL);
    if (shown.exitCode !== 0) throw refusal("ip-failed", "ip", shown);
    const marked = marks.read();
    const isListed = (link: string, address: string, index = 0): boolean =>
      marked.has(addressMark(index, address)) || unmarked.some((one) => one.link === link && one.address === address);
    return parseShown(shown.stdout, isListed);
  };

  const tryOnce = async (signal: AbortSignal): Promise<NetworkFeatures> => {
    features ??= await tryFeatures(toolRunner(privilegedExec(exec, isManaged)), dhcp.choose() !== undefined, signal);
    return features;
  };

  /** The lines with our mark on the addresses that have no other, once it is noted whose those are. */
  const markedLines = async (
    lines: readonly string[],
    unmarked: LedgerContent["addresses"],
    noted: Promise<void>,
    signal: AbortSignal,
  ): Promise<string> => {
    await noted;
    await ledger.change({ addresses: unmarked });
    const knows = lines.some(isNewAddress) && (await tryOnce(signal)).addressProtocol;
    const marked = knows ? lines.map((line) => (isNewAddress(line) ? `${line} proto ${OUR_PROTOCOL}` : line)) : lines;
    return [...marked, ""].join("\n");
  };

  const runLines = async (lines: readonly string[], noted: Promise<void>, signal: AbortSignal): Promise<void> => {
    // Whose an address is depends on the ledger, too.
    ahead.drop();
    const unmarked = listed(await ledger.content(), addresses, lines);
    const input = markedLines(lines, unmarked.before, noted, signal);
    // Starting ip takes time of its own, and it changes nothing until it is given something.
    const running = tools.run("ip", ["-batch", "-"], signal, input);
    await Promise.allSettled([input, running]);
    await input;
    const done = await running;
    if (!(features?.addressProtocol ?? false)) marks.mark(lines.flatMap(newAddress));
    if (done.exitCode === 0) await ledger.change({ addresses: unmarked.after });
    else {
      const [[number, said] = []] = refusedLines(done.stderr);
      if (number === undefined) throw refusal("ip-failed", "ip", done);
      const line = lines[number - 1] ?? "";
      throw new HostError("ip-failed", `ip: line ${number}, ${line}: ${said}`, {
        details: { tool: "ip", line: number, text: line, said },
      });
    }
  };

  /** The table is nothing that `ip` shows: whoever looks whether all is as it shall be need not wait for both in turn. */
  const loadTable = async (text: string | undefined, noted: Promise<void>, signal: AbortSignal): Promise<void> => {
    const content = await ledger.content();
    let looked = Promise.resolve();
    // Not before: where there are two processors, two of nft are what they have time for.
    const loaded = firewall.load(text, signal, noted, () => {
      looked = ahead.begin(async () => {
        // Starting a tool keeps this thread busy, and the load is what takes longer.
        await setImmediate();
        return showAll(content, signal);
      });
    });
    await Promise.allSettled([loaded]);
    await looked;
    return loaded;
  };

  /** Changes nothing of the machine before it is noted that something of it may be ours. */
  const carryOut = async (change: Change, noted: Promise<void>, signal: AbortSignal): Promise<void> => {
    if (change.kind !== "nft" && change.kind !== "ip") await noted;
    switch (change.kind) {
      case "ip":
        return runLines(change.lines, noted, signal);
      case "nft":
        return loadTable(change.text, noted, signal);
      case "sysctl":
        for (const [name, value] of change.values) await writeSysctl(name, value);
        return;
      case "ethtool":
        return speed.set(change.link, change.fixed, signal);
      case "dhcp":
        if (change.run) return dhcp.start(change.link, change.withoutGateway !== true, signal);
        await dhcp.stop(change.link, signal);
        // Addresses of the link that the client removed when it stopped were set again, without a mark.
        marks.mark((addresses ?? []).filter(({ link, isOurs }) => isOurs && link === change.link));
        return;
      case "resolver":
        return nameServers.set(change.servers, signal);
    }
  };

  return {
    features: tryOnce,
    async observe({ sysctls }, signal) {
      firewall.forget();
      const content = await ledger.content();
      // Where nothing was ever begun there is no table of ours; whoever looks again is not told so a second time.
      const isNew = !content.isUsed && !hasLooked;
      // Files are read while the kernel is asked, and a tool is at work.
      const others = Promise.all([nameServers.observe(), speed.observe(), dhcp.observe()]);
      others.catch(() => undefined); // The tool's failure says more.
      const looking = together(signal, [
        async (both) => ahead.take() ?? showAll(content, both),
        (both) => (isNew ? firewall.presumeAbsent() : firewall.observe(both)),
      ]);
      const [{ links, ...rest }, found] = await looking;
      const table = isNew && hasOurs({ links, ...rest }) ? await firewall.observe(signal) : found;
      hasLooked = true;
      addresses = rest.addresses;
      const [servers, fixed, leased] = await others;
      firewall.readBack();
      return {
        ...rest,
        links: links.map((link) => withFixed(link, fixed)),
        ...(table === undefined ? {} : { firewall: table }),
        sysctls: readSysctls(reader, sysctls),
        dhcp: leased,
        ...dhcp.details(leased),
        ...(servers === undefined ? {} : { nameServers: servers }),
      };
    },
    async observeNeighbours(signal) {
      const shown = await tools.run("ip", ["-4", "-N", "-json", "neighbour", "show"], signal);
      if (shown.exitCode !== 0) throw refusal("ip-failed", "ip", shown);
      return parseNeighbours(shown.stdout);
    },
    async apply(change, signal) {
      signal.throwIfAborted();
      const noted = ledger.change({ isUsed: true });
      const carried = Promise.resolve().then(() => carryOut(change, noted, signal));
      // The check changes nothing, and so waits for nothing; it takes longer than all that can be done beside it, and so is begun first.
      const checked =
        change.kind === "ip" && change.next !== undefined
          ? firewall.prepare(change.next, signal, settled(carried))
          : Promise.resolve();
      const beside = Promise.allSettled([checked, noted]);
      try {
        await carried;
      } catch (error) {
        await beside;
        firewall.forget();
        throw error;
      }
      await beside;
    },
    mayOwn: async () => (await ledger.content()).isUsed,
    disown: () => ledger.change({ isUsed: false, addresses: [], fixed: [], firewall: undefined }),
  };
}

/** Comes about however the task ends. */
async function settled(task: Promise<void>): Promise<void> {
  await Promise.allSettled([task]);
}

/** Runs two things at once; when one fails the other is ended, and waited for. */
async function together<A, B>(
  signal: AbortSignal,
  [one, other]: readonly [(both: AbortSignal) => Promise<A>, (both: AbortSignal) => Promise<B>],
): Promise<readonly [A, B]> {
  const failed = new AbortController();
  const both = AbortSignal.any([signal, failed.signal]);
  const guarded = async <T>(task: Promise<T>): Promise<T> => {
    try {
      return await task;
    } catch (error) {
      failed.abort(error);
      throw error;
    }
  };
  const tasks = [guarded(one(both)), guarded(other(both))] as const;
  await Promise.allSettled(tasks);
  signal.throwIfAborted();
  if (failed.signal.aborted) throw toError(failed.signal.reason);
  return Promise.all(tasks);
}

function hasOurs({ links, addresses, routes, rules }: IpOutput): boolean {
  const isOurs = links.some((link) => link.isOurs) || addresses.some((address) => address.isOurs);
  return isOurs || [...routes, ...rules].some(({ protocol }) => protocol === OUR_PROTOCOL);
}

function newAddress(line: string): readonly { readonly link: string; readonly address: string }[] {
  const about = addressOfLine(line);
  return about?.isAdded === true ? [about] : [];
}

const isNewAddress = (line: string): boolean => addressOfLine(line)?.isAdded === true;

function withFixed<T extends { readonly name: string }>(
  link: T,
  fixed: ReadonlyMap<string, { readonly speedMbps: number; readonly duplex: "full" | "half" }>,
) {
  const found = fixed.get(link.name);
  return found === undefined ? link : { ...link, fixed: found };
}

/**
 * The unmarked addresses of ours to list before the lines are run, so that none of them is ever a stranger's, and after. One that is there
 * already, of a lease, takes no mark.
 */
function listed(
  { addresses }: LedgerContent,
  seen: readonly AddressState[] | undefined,
  lines: readonly string[],
): { readonly before: LedgerContent["addresses"]; readonly after: LedgerContent["addresses"] } {
  const keyOf = ({ link, address }: { readonly link: string; readonly address: string }): string =>
    `${link} ${address}`;
  const present = seen === undefined ? undefined : new Set(seen.map(keyOf));
  const strange = new Set((seen ?? []).filter(({ isOurs }) => !isOurs).map(keyOf));
  const kept = new Map(
    addresses.filter((one) => present?.has(keyOf(one)) ?? true).map((one) => [keyOf(one), one] as const),
  );
  const removed = new Set<string>();
  for (const line of lines) {
    const about = addressOfLine(line);
    if (about === undefined) continue;
    const { link, address, isAdded } = about;
    const key = keyOf(about);
    if (!isAdded) removed.add(key);
    else if (addressLabel(link) === undefined || (strange.has(key) && !removed.has(key))) {
      kept.set(key, { link, address });
      removed.delete(key);
    }
  }
  const before = [...kept.values()];
  return { before, after: before.filter((one) => !removed.has(keyOf(one))) };
}
