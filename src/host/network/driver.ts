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
import { addressLabel, addressOfLine } from "./ip/lines.ts";
import { RESOLVER_FILES } from "../net/resolver.ts";
import { NameServers } from "./resolver/name-servers.ts";
import { resolverFile } from "./resolver/resolver-file.ts";
import { OUR_PROTOCOL, type AddressState, type NeighbourState, type NetworkState } from "./state/state.ts";
import { kernelTables, type KernelTables } from "./firewall/table-dump.ts";
import { readSysctls, writeSysctl } from "./ip/sysctls.ts";
import { refusal, toolRunner } from "./ip/tool.ts";
import { defined } from "../../lib/defined.ts";

/** The network of this process's network namespace. */
export interface NetworkDriver {
  /** Returns the features of the machine; tried once, in a scratch namespace. */
  features(signal: AbortSignal): Promise<NetworkFeatures>;
  /**
   * Reads the whole state with one process, or two if the kernel cannot be asked for the firewall.
   * @throws {HostError} `tool-missing` without ip(8), `bad-output`, `too-much-output`, and errors of the tools.
   */
  observe(wanted: { readonly sysctls: Iterable<string> }, signal: AbortSignal): Promise<NetworkState>;
  /** Returns the kernel's IPv4 neighbours. */
  observeNeighbours(signal: AbortSignal): Promise<readonly NeighbourState[]>;
  /**
   * Applies one change, after recording in the ledger that something may be ours.
   * @throws {HostError} that names the failure. Lines of ip before the failed one stay applied (`details.line` counts from 1).
   */
  apply(change: Change, signal: AbortSignal): Promise<void>;
  /** Reports whether anything may be ours; if not and nothing is desired, there is nothing to observe. Starts no process. */
  mayOwn(): Promise<boolean>;
  /** Records that nothing is ours. The next change reverts this. */
  disown(): Promise<void>;
}

export interface NetworkDriverOptions {
  readonly exec: Exec;
  readonly files: Files;
  readonly reader: Reader;
  readonly clock: Clock;
  /** Directory of `network.json` and the files of DHCP clients. */
  readonly stateDir: string;
  /** Directory of files that do not survive a reboot. */
  readonly runDir: string;
  /** Whether systemd runs this program. */
  readonly isManaged: boolean;
  readonly onDamage?: OnDamage;
  /** `/etc/resolv.conf` by default. */
  readonly resolverPath?: string;
  /** All supported clients by default. */
  readonly dhcpClients?: readonly DhcpClient[];
  /** The kernel's tables by default. */
  readonly tables?: KernelTables;
  /** The kernel's marks by default. */
  readonly addressMarks?: AddressMarks;
  /** Output limit of one tool, in bytes. */
  readonly maxOutputBytes?: number;
}

/** Returns a driver of ip(8), nft(8), ethtool(8), a DHCP client and the resolver. */
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
  /** Addresses of the last observation; the ledger drops those that no longer exist. */
  let addresses: readonly AddressState[] | undefined;
  const marks = options.addressMarks ?? kernelAddressMarks;

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

  /** Marks the new addresses as ours if ip knows address protocols. */
  const markedLines = async (lines: readonly string[], signal: AbortSignal): Promise<string> => {
    const knows = lines.some(isNewAddress) && (await tryOnce(signal)).addressProtocol;
    const marked = knows ? lines.map((line) => (isNewAddress(line) ? `${line} proto ${OUR_PROTOCOL}` : line)) : lines;
    return [...marked, ""].join("\n");
  };

  const runLines = async (lines: readonly string[], signal: AbortSignal): Promise<void> => {
    const unmarked = listed(await ledger.content(), addresses, lines);
    await ledger.change({ addresses: unmarked.before });
    const done = await tools.run("ip", ["-batch", "-"], signal, await markedLines(lines, signal));
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

  return {
    features: tryOnce,
    async observe({ sysctls }, signal) {
      const content = await ledger.content();
      // Files are read while the tools run.
      const others = Promise.all([nameServers.observe(), speed.observe(), dhcp.observe()]);
      others.catch(() => undefined); // A failure of the tool is more informative.
      const [{ links, ...rest }, table] = await together(signal, [
        (both) => showAll(content, both),
        (both) => firewall.observe(both),
      ]);
      addresses = rest.addresses;
      const [servers, fixed, leased] = await others;
      return {
        ...rest,
        links: links.map((link) => withFixed(link, fixed)),
        ...defined({ firewall: table }),
        sysctls: readSysctls(reader, sysctls),
        dhcp: leased,
        ...dhcp.details(leased),
        ...defined({ nameServers: servers }),
      };
    },
    async observeNeighbours(signal) {
      const shown = await tools.run("ip", ["-4", "-N", "-json", "neighbour", "show"], signal);
      if (shown.exitCode !== 0) throw refusal("ip-failed", "ip", shown);
      return parseNeighbours(shown.stdout);
    },
    async apply(change, signal) {
      signal.throwIfAborted();
      await ledger.change({ isUsed: true });
      switch (change.kind) {
        case "ip":
          return runLines(change.lines, signal);
        case "nft":
          return firewall.load(change.text, signal);
        case "sysctl":
          for (const [name, value] of change.values) await writeSysctl(name, value);
          return;
        case "ethtool":
          return speed.set(change.link, change.fixed, signal);
        case "dhcp":
          if (change.run) return dhcp.start(change.link, change.withoutGateway !== true, signal);
          await dhcp.stop(change.link, signal);
          // Addresses that the client removed when it stopped were set again, without a mark.
          marks.mark((addresses ?? []).filter(({ link, isOurs }) => isOurs && link === change.link));
          return;
        case "resolver":
          return nameServers.set(change.servers, signal);
      }
    },
    mayOwn: async () => (await ledger.content()).isUsed,
    disown: () => ledger.change({ isUsed: false, addresses: [], fixed: [], firewall: undefined }),
  };
}

/** Runs two tasks concurrently; if one fails, aborts the other and waits for it. */
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

function newAddress(line: string): readonly { readonly link: string; readonly address: string }[] {
  const parsed = addressOfLine(line);
  return parsed?.isAdded === true ? [parsed] : [];
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
 * Returns our unmarked addresses to record before the lines run, so that none is ever taken for foreign, and those to record
 * afterwards. An existing leased address gets no mark.
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
    const parsed = addressOfLine(line);
    if (parsed === undefined) continue;
    const { link, address, isAdded } = parsed;
    const key = keyOf(parsed);
    if (!isAdded) removed.add(key);
    else if (addressLabel(link) === undefined || (strange.has(key) && !removed.has(key))) {
      kept.set(key, { link, address });
      removed.delete(key);
    }
  }
  const before = [...kept.values()];
  return { before, after: before.filter((one) => !removed.has(keyOf(one))) };
}
