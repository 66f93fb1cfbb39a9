/** The supported DHCP clients, in order of preference. */
export const DHCP_CLIENTS = ["dhcpcd", "dhclient", "udhcpc"] as const;
export type DhcpClient = (typeof DHCP_CLIENTS)[number];

export interface DhcpPaths {
  /** The script of `dhcp-script.ts`. */
  readonly script: string;
  /** The configuration of dhclient. */
  readonly config: string;
  /** dhclient's leases of this link. */
  readonly leases: string;
  /** dhclient's own pid file. */
  readonly pid: string;
  /** File in which the script stores the address. */
  readonly lease: string;
  /** File in which the script stores the gateway and the name servers. */
  readonly offer: string;
}

/** Settings for the routes of a lease. */
export interface DhcpRoutes {
  readonly metric: number;
  /** Whether the lease's default route is one of them. */
  readonly usesGateway: boolean;
}

/** The command that runs a client in the foreground, and the way to stop it with a lease release. */
export interface DhcpCommand {
  readonly args: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  /** The signal on which it releases the lease and exits. */
  readonly stopSignal: "SIGALRM" | "SIGTERM";
  /** Arguments of a command to run before the signal, if the signal alone does not release the lease. */
  readonly stopArgs?: readonly string[];
}

/** Returns a client's command line for one link: IPv4 only, routes as specified; neither the resolver nor the host name is changed. */
export function dhcpCommand(
  client: DhcpClient,
  link: string,
  { metric, usesGateway }: DhcpRoutes,
  paths: DhcpPaths,
): DhcpCommand {
  const environment = {
    HOLDFAST_METRIC: `${metric}`,
    HOLDFAST_LEASE: paths.lease,
    HOLDFAST_OFFER: paths.offer,
    ...(usesGateway ? {} : { HOLDFAST_GATEWAY: "0" }),
  };
  switch (client) {
    case "dhcpcd": {
      // dhcpcd sets addresses and routes itself. Our script replaces its hooks, which would write resolv.conf, and it uses no
      // configuration file.
      const quiet = ["-4", "-B", "-q", "-f", "/dev/null", "-c", paths.script, "--noipv4ll"];
      const handed = ["-e", "HOLDFAST_NOTES=1", "-e", `HOLDFAST_OFFER=${paths.offer}`];
      const asked = ["routers", "domain_name_servers"].flatMap((name) => ["-o", name]);
      // It would set these routes even if a server sends them unrequested.
      const ignored = ["static_routes", "classless_static_routes", "ms_classless_static_routes"];
      const refused = ignored.flatMap((name) => ["-O", name]);
      const options = [...asked, ...refused, "-m", `${metric}`, ...(usesGateway ? [] : ["--nogateway"])];
      return { args: [...quiet, ...handed, ...options, link], environment: {}, stopSignal: "SIGALRM" };
    }
    case "dhclient": {
      const files = ["-cf", paths.config, "-sf", paths.script, "-lf", paths.leases, "-pf", paths.pid];
      // It does not pass its own environment to its script.
      const handed = Object.entries(environment).flatMap(([name, value]) => ["-e", `${name}=${value}`]);
      const common = ["-4", "-q", ...files, ...handed];
      return {
        args: ["-d", ...common, link],
        environment,
        stopSignal: "SIGTERM",
        stopArgs: ["-r", ...common, link],
      };
    }
    case "udhcpc":
      return {
        args: ["-f", "-S", "-R", "-i", link, "-s", paths.script],
        environment,
        stopSignal: "SIGTERM",
      };
  }
}

/** Returns the unit of a link's client; an instance name escapes most characters (systemd.unit(5)). */
export function dhcpUnit(link: string): string {
  const escaped = [...Buffer.from(link)].map((byte) => {
    const character = String.fromCodePoint(byte);
    return /[a-zA-Z0-9:_.]/.test(character) ? character : `\\x${byte.toString(16).padStart(2, "0")}`;
  });
  return `holdfast-dhcp@${escaped.join("")}.service`;
}

/** Returns the link of a client's unit; undefined for another unit. */
export function linkOfUnit(unit: string): string | undefined {
  const instance = /^holdfast-dhcp@(.+)\.service$/.exec(unit)?.[1];
  if (instance === undefined) return undefined;
  const bytes = instance.replaceAll(/\\x([0-9a-f]{2})/g, (_, hex: string) => String.fromCodePoint(Number(`0x${hex}`)));
  return Buffer.from(bytes, "latin1").toString("utf8");
}
