import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Ports } from "../l4/contenders.ts";
import { startHelper, startTool, until, type Running, type StartOptions } from "../programs.ts";
import { aKey, certificateOf } from "./certificate.ts";
import type { Sites } from "./sites.ts";

/** Something that leads from site A through the gateway to the servers of site B. */
export interface Carrier {
  readonly name: string;
  /** Host that site A connects to; 127.0.0.1 by default. */
  readonly host?: string;
  readonly ports: Ports;
  /** The processes that carry. */
  readonly pids: readonly number[];
  end(): Promise<void>;
}

export const HAPROXY = "/usr/sbin/haproxy";
const SERVERS = ["source", "sink", "echo"] as const;

/** Ports of one's own in a site, for each of the servers. */
export function portsFrom(first: number): Ports {
  return { source: first, sink: first + 1, echo: first + 2 };
}

export interface BareOptions {
  readonly first: number;
  /** Host at which site A connects to the gateway, if not the gateway's own. */
  readonly by?: string;
}

/** Nodes with the same layers: TLS and HTTP/2 on each hop, and TLS and HTTP/2 again from end to end. */
export async function startBare(sites: Sites, to: Ports, { first, by }: BareOptions): Promise<Carrier> {
  const { a, b, gateway, gatewayForB } = sites;
  const port = first + 9;
  const ports = portsFrom(first);
  const relay = await startBareGateway(sites, port);
  const destination = startHelper("overlay/bare-destination.ts", [`${gatewayForB}:${port}`], { netOf: b.netOf });
  await until("the bare edge has dialled", async () => (await relay.ask("edges")) === "1");
  const pairs = SERVERS.map((server) => `${ports[server]}:${to[server]}`);
  const args = [by ?? `${gateway.address}:${port}`, ...pairs];
  const source = startHelper("overlay/bare-source.ts", args, { netOf: a.netOf });
  await source.ask("ready");
  return carrier("bare Node", ports, [source, relay, destination]);
}

/** The gateway of it alone; asked anything, it answers how many edges it has. */
export async function startBareGateway({ gateway, gatewayForB }: Sites, port: number, options: StartOptions = {}) {
  const args = [String(port), gateway.address, gatewayForB];
  const relay = startHelper("overlay/bare-gateway.ts", args, { ...options, netOf: gateway.netOf });
  await relay.ask("edges");
  return relay;
}

/** Three Nodes that pipe each connection to the next one. */
export async function startSplices(sites: Sites, to: Ports, first: number): Promise<Carrier> {
  const { a, b, gateway } = sites;
  const ports = portsFrom(first);
  const hop = (netOf: number, own: string, next: (server: (typeof SERVERS)[number]) => string) =>
    startHelper("overlay/plain-hop.ts", ["0", ...SERVERS.map((one) => `${own}:${ports[one]}=${next(one)}`)], { netOf });
  const hops = [
    hop(b.netOf, b.address, (server) => `127.0.0.1:${to[server]}`),
    hop(gateway.netOf, gateway.address, (server) => `${b.address}:${ports[server]}`),
    hop(a.netOf, "127.0.0.1", (server) => `${gateway.address}:${ports[server]}`),
  ];
  await Promise.all(hops.map((one) => one.ask("ready")));
  return carrier("plain splices", ports, hops);
}

/** HAProxy on all three, TLS between them and end to end in the clear for the gateway; one thread each, as the overlay has. */
export function startHaproxies(dir: string, sites: Sites, to: Ports, first: number): Carrier {
  const { a, b, gateway } = sites;
  const ports = portsFrom(first);
  const pem = join(dir, "haproxy.pem");
  const { cert, key } = certificateOf(aKey());
  writeFileSync(pem, `${cert}${key}`, { mode: 0o600 });
  const secured = `ssl crt ${pem}`;
  const begin = (name: string, netOf: number, own: string, bind: string, next: (port: number) => string) => {
    const file = join(dir, `haproxy-${name}.cfg`);
    const listeners = SERVERS.flatMap((server) => [
      `listen ${server}`,
      `  bind ${own}:${ports[server]} ${bind}`,
      `  server next ${next(ports[server])}`,
    ]);
    writeFileSync(file, `${[...HAPROXY_CONFIG, ...listeners].join("\n")}\n`);
    return startTool(HAPROXY, ["-db", "-f", file], join(dir, `haproxy-${name}.log`), netOf);
  };
  const verified = "ssl verify none";
  return carrier("HAProxy over TLS", ports, [
    begin("b", b.netOf, b.address, secured, (port) => `127.0.0.1:${to[serverAt(ports, port)]}`),
    begin("gateway", gateway.netOf, gateway.address, secured, (port) => `${b.address}:${port} ${verified}`),
    begin("a", a.netOf, "127.0.0.1", "", (port) => `${gateway.address}:${port} ${verified}`),
  ]);
}

const HAPROXY_CONFIG = [
  "global",
  "  nbthread 1",
  "  maxconn 8000",
  "  ssl-default-bind-options ssl-min-ver TLSv1.3",
  "  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256",
  "  ssl-default-server-ciphersuites TLS_AES_128_GCM_SHA256",
  "defaults",
  "  mode tcp",
  "  timeout connect 5s",
  "  timeout client 1d",
  "  timeout server 1d",
];

function serverAt(ports: Ports, port: number): (typeof SERVERS)[number] {
  return SERVERS.find((server) => ports[server] === port) ?? "echo";
}

/** Returns the reason why HAProxy cannot be compared; undefined if it can. */
export function whyNoHaproxy(): string | undefined {
  return existsSync(HAPROXY) ? undefined : `${HAPROXY} is missing; install it with: apt-get install haproxy`;
}

/** One made of these processes. */
export function carrier(name: string, ports: Ports, programs: readonly Running[], host?: string): Carrier {
  return {
    name,
    ports,
    pids: programs.map(({ pid }) => pid),
    ...(host === undefined ? {} : { host }),
    async end() {
      await Promise.all(programs.map((program) => program.end("SIGKILL")));
    },
  };
}
