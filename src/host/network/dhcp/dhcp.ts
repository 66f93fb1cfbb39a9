import { spawn, type ChildProcess } from "node:child_process";
import { HostError } from "../../../errors.ts";
import type { Clock } from "../../clock.ts";
import { SEARCH_PATH } from "../../process/exec.ts";
import type { Files } from "../../files/files.ts";
import { findProcess, signalGroup, signalProcess, type ProcessId } from "../../process/process-tree.ts";
import type { Reader } from "../../reader.ts";
import {
  DHCP_CLIENTS,
  dhcpCommand,
  dhcpUnit,
  linkOfUnit,
  type DhcpClient,
  type DhcpCommand,
  type DhcpPaths,
} from "./dhcp-client.ts";
import { DHCLIENT_CONFIG, DHCP_SCRIPT } from "./dhcp-script.ts";
import { parseOffer } from "../state/lease-offer.ts";
import type { NetworkState } from "../state/state.ts";
import { leasedAndLasting, sourcesOf, type LeasedAndLasting } from "./leased-and-lasting.ts";
import { refusal, type ToolRunner } from "../ip/tool.ts";

export interface DhcpOptions {
  readonly tools: ToolRunner;
  readonly files: Files;
  readonly reader: Reader;
  readonly clock: Clock;
  readonly stateDir: string;
  readonly runDir: string;
  /** Whether systemd runs this program and can run the clients; otherwise clients are detached children. */
  readonly isManaged: boolean;
  /** Candidate clients, the preferred one first. */
  readonly clients?: readonly DhcpClient[];
}

/** Lease routes rank after all configured routes, and before those of most other programs. */
const FIRST_METRIC = 300;
const metricOf = (index: number): number => FIRST_METRIC + (index % 700);
/** Time after which a client counts as started; one that rejects its options exits at once. */
const PROVEN_MS = 300;
const STOP_WITHIN_MS = 5000;
const LOOK_EVERY_MS = 50;
/** Saves its proc_pid_stat(5) line and then executes the client, so that a running client always has its pid file. */
const LAUNCH = 'cat /proc/$$/stat >"$0" && exec "$@"';
const TRANSIENT_UNITS = "/run/systemd/transient";

/** Our DHCP clients, one per link; they outlive this process. */
export class DhcpClients {
  readonly #options: DhcpOptions;

  constructor(options: DhcpOptions) {
    this.#options = options;
  }

  /** Returns the links with a running client. */
  async observe(): Promise<ReadonlySet<string>> {
    const { isManaged, reader, files, runDir } = this.#options;
    if (isManaged) {
      const units = reader.list(TRANSIENT_UNITS) ?? [];
      return new Set(units.map(linkOfUnit).filter((link) => link !== undefined));
    }
    const links = (await files.list(runDir)).flatMap((name) => /^dhcp-(.+)\.pid$/.exec(name)?.[1] ?? []);
    return new Set(links.filter((link) => this.#find(link) !== undefined));
  }

  /** Returns the state of these links' clients: those that ignore the lease's default route, and the offers of their leases. */
  details(links: ReadonlySet<string>): Pick<NetworkState, "dhcpWithoutGateway" | "leases"> {
    const { reader } = this.#options;
    const without = [...links].filter((link) => reader.read(this.#withoutGatewayPath(link)) !== undefined);
    const leases = [...links].flatMap((link) => {
      const offer = reader.read(this.#paths(link).offer);
      return offer === undefined ? [] : [[link, parseOffer(offer)] as const];
    });
    return {
      ...(without.length === 0 ? {} : { dhcpWithoutGateway: without }),
      ...(leases.length === 0 ? {} : { leases: Object.fromEntries(leases) }),
    };
  }

  /** Returns the client to start; undefined if none is installed. */
  choose(): { readonly client: DhcpClient; readonly path: string } | undefined {
    const { reader, clients = DHCP_CLIENTS } = this.#options;
    for (const client of clients) {
      // A dhcpcd that manages all links would take over our command.
      if (client === "dhcpcd" && ["/run/dhcpcd/pid", "/run/dhcpcd.pid"].some((path) => reader.read(path) !== undefined))
        continue;
      const path = SEARCH_PATH.split(":")
        .map((dir) => `${dir}/${client}`)
        .find((path) => reader.fingerprint(path) !== undefined);
      if (path !== undefined) return { client, path };
    }
    return undefined;
  }

  /**
   * Starts a client unless one is running. `usesGateway` controls whether the lease's default route is set.
   * @throws {HostError} `unsupported` if no client is installed, `dhcp-failed`.
   */
  async start(link: string, usesGateway: boolean, signal: AbortSignal): Promise<void> {
    if ((await this.observe()).has(link)) return;
    const chosen = this.choose();
    if (chosen === undefined) {
      const names = DHCP_CLIENTS.join(", ");
      throw new HostError("unsupported", `DHCP on ${link} requires one of ${names}; install one`);
    }
    const { files, stateDir, isManaged } = this.#options;
    const index = await this.#indexOf(link, signal);
    const paths = this.#paths(link);
    await files.makeDirectory(`${stateDir}/dhcp`, 0o700);
    await files.writeAtomic(paths.script, DHCP_SCRIPT, 0o700);
    await files.writeAtomic(paths.config, DHCLIENT_CONFIG, 0o600);
    if (usesGateway) await files.remove(this.#withoutGatewayPath(link));
    else await files.writeAtomic(this.#withoutGatewayPath(link), "", 0o600);
    const command = dhcpCommand(chosen.client, link, { metric: metricOf(index), usesGateway }, paths);
    if (isManaged) await this.#startUnit(link, chosen.path, command, signal);
    else await this.#startChild(link, chosen.path, command, signal);
  }

  /**
   * Stops the client, which releases its lease and removes its address. If the address is permanent by then it stays, and the
   * lease is not released.
   * @throws {HostError} `dhcp-failed`.
   */
  async stop(link: string, signal: AbortSignal): Promise<void> {
    const { files, tools, isManaged } = this.#options;
    const before = await leasedAndLasting(tools, link, signal);
    const isTaken = await this.#isTaken(link, before, signal);
    if (isManaged) await this.#stopUnit(link, isTaken, signal);
    else await this.#stopChild(link, isTaken, signal);
    const { lease, pid, offer } = this.#paths(link);
    const left = (await files.read(lease))?.trim() ?? "";
    // The client could not clean up after itself.
    if (left !== "" && !isTaken) await tools.run("ip", ["-4", "address", "delete", left, "dev", link], signal);
    if (before.lasting.length > 0) {
      const still = new Set((await leasedAndLasting(tools, link, signal)).lasting);
      const lost = before.lasting.filter((line) => !still.has(line));
      if (lost.length > 0) await tools.run("ip", ["-force", "-batch", "-"], signal, `${lost.join("\n")}\n`);
    }
    for (const path of [lease, offer, pid, this.#pidPath(link), this.#withoutGatewayPath(link)])
      await files.remove(path);
  }

  /**
   * Reports whether the leased address is now a permanent one of the link, and removes the lease's routes if so. Such a client is
   * killed, because it would remove the address, and the server would lease a released one to another host.
   * @throws {HostError} `dhcp-failed`.
   */
  async #isTaken(link: string, { index, lasting, leased }: LeasedAndLasting, signal: AbortSignal): Promise<boolean> {
    if (index === undefined || lasting.length === 0) return false;
    const { tools } = this.#options;
    const selector = ["table", "all", "dev", link, "proto", "dhcp", "metric", `${metricOf(index)}`];
    const sources = await sourcesOf(tools, selector, signal);
    if ([...leased].some((address) => sources.size === 0 || sources.has(address))) return false;
    if (sources.size === 0) return true;
    const flushed = await tools.run("ip", ["-4", "route", "flush", ...selector], signal);
    if (flushed.exitCode !== 0) throw refusal("dhcp-failed", "ip", flushed);
    return true;
  }

  /** The mounted sysfs may belong to another network namespace. */
  async #indexOf(link: string, signal: AbortSignal): Promise<number> {
    const shown = await this.#options.tools.run("ip", ["-o", "link", "show", "dev", link], signal);
    if (shown.exitCode !== 0) throw refusal("dhcp-failed", "ip", shown);
    return Number.parseInt(shown.stdout, 10);
  }

  async #startUnit(link: string, path: string, command: DhcpCommand, signal: AbortSignal): Promise<void> {
    const { args, environment, stopSignal, stopArgs } = command;
    const stop = stopArgs === undefined ? [] : [`--property=ExecStop=${[path, ...stopArgs].map(quoted).join(" ")}`];
    const started = await this.#options.tools.run(
      "systemd-run",
      [
        "--quiet",
        "--collect",
        "--service-type=exec",
        `--unit=${dhcpUnit(link)}`,
        "--property=Restart=always",
        "--property=RestartSec=5",
        `--property=KillSignal=${stopSignal}`,
        ...stop,
        ...Object.entries(environment).map(([name, value]) => `--setenv=${name}=${value}`),
        "--",
        path,
        ...args,
      ],
      signal,
    );
    if (started.exitCode !== 0) throw refusal("dhcp-failed", "systemd-run", started);
  }

  async #startChild(
    link: string,
    path: string,
    { args, environment }: DhcpCommand,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock } = this.#options;
    signal.throwIfAborted();
    const child = spawn("/bin/sh", ["-c", LAUNCH, this.#pidPath(link), path, ...args], {
      detached: true,
      stdio: "ignore",
      cwd: "/",
      env: { PATH: SEARCH_PATH, LC_ALL: "C", TZ: "UTC", ...environment },
    });
    child.unref();
    const ended = endOf(child);
    const proven = new AbortController();
    const stays = clock.sleep(PROVEN_MS, AbortSignal.any([signal, proven.signal])).then(() => undefined);
    const how = await Promise.race([ended, stays]).finally(() => proven.abort());
    if (how === undefined) return;
    throw new HostError("dhcp-failed", `${path} on ${link} exited at once: ${how}`, { details: { link } });
  }

  async #stopUnit(link: string, isTaken: boolean, signal: AbortSignal): Promise<void> {
    const { tools } = this.#options;
    const unit = dhcpUnit(link);
    // systemd runs no ExecStop= for a killed client (systemd.service(5)). A missing unit is fine.
    if (isTaken) await tools.run("systemctl", ["kill", "--signal=SIGKILL", "--", unit], signal);
    const stopped = await tools.run("systemctl", ["stop", "--", unit], signal);
    // 5: the unit is not loaded (systemctl(1)).
    if (stopped.exitCode !== 0 && stopped.exitCode !== 5) throw refusal("dhcp-failed", "systemctl", stopped);
  }

  async #stopChild(link: string, isTaken: boolean, signal: AbortSignal): Promise<void> {
    const running = this.#find(link);
    if (running === undefined) return;
    const { id, client } = running;
    const { tools } = this.#options;
    if (!isTaken) {
      const { stopArgs, stopSignal } = dhcpCommand(client, link, { metric: 0, usesGateway: true }, this.#paths(link));
      if (stopArgs !== undefined) await tools.run(client, stopArgs, signal);
      signalProcess(id, stopSignal);
      if (await this.#isGone(link, signal)) return;
    }
    signalGroup(id.pid, "SIGKILL");
    if (await this.#isGone(link, signal)) return;
    throw new HostError("dhcp-failed", `cannot stop the DHCP client on ${link}`, {
      details: { link, pid: id.pid },
    });
  }

  async #isGone(link: string, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#options;
    const until = clock.elapsed() + STOP_WITHIN_MS;
    while (this.#find(link) !== undefined) {
      if (clock.elapsed() > until) return false;
      await clock.sleep(LOOK_EVERY_MS, signal);
    }
    return true;
  }

  /** Returns the client of the link's pid file, if it is alive. */
  #find(link: string): { readonly id: ProcessId; readonly client: DhcpClient } | undefined {
    const { reader } = this.#options;
    const id = findProcess(reader.read(this.#pidPath(link)) ?? "");
    if (id === undefined) return undefined;
    const [title = ""] = (reader.read(`/proc/${id.pid}/cmdline`) ?? "").split("\0");
    const name = title.slice(title.lastIndexOf("/") + 1);
    const client = DHCP_CLIENTS.find((client) => name.startsWith(client));
    return client === undefined ? undefined : { id, client };
  }

  #pidPath(link: string): string {
    return `${this.#options.runDir}/dhcp-${link}.pid`;
  }

  #withoutGatewayPath(link: string): string {
    return `${this.#options.runDir}/dhcp-${link}.nogateway`;
  }

  #paths(link: string): DhcpPaths {
    const { stateDir, runDir } = this.#options;
    return {
      script: `${stateDir}/dhcp/script`,
      config: `${stateDir}/dhcp/dhclient.conf`,
      leases: `${stateDir}/dhcp/${link}.leases`,
      pid: `${runDir}/dhclient-${link}.pid`,
      lease: `${runDir}/dhcp-${link}.lease`,
      offer: `${runDir}/dhcp-${link}.offer`,
    };
  }
}

function endOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child
      .once("error", (error) => resolve(error.message))
      .once("exit", (status, signal) => resolve(signal ?? `exit status ${status}`));
  });
}

/** Quotes a word of a unit's command line (systemd.service(5)). */
function quoted(word: string): string {
  return `"${word.replaceAll(/["\\]/g, "\\$&").replaceAll("%", "%%").replaceAll("$", "$$$$")}"`;
}
