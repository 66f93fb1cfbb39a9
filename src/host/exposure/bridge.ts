import { z } from "zod";
import { HostError } from "../../errors.ts";
import { refusal, type ToolRunner } from "../network/ip/tool.ts";
import type { Reader } from "../reader.ts";

/** The bridge of the containers' network, as the engine makes it. */
export interface Bridge {
  readonly link: string;
  /** Address of the bridge, which is the containers' gateway, and its prefix length. */
  readonly address: string;
  readonly prefixLength: number;
}

const Links = z.array(
  z.object({ ifname: z.string(), link_index: z.number().optional(), master: z.string().optional() }),
);

/**
 * Recreates the bridge and reattaches the links of the containers with these processes, without stopping them. Identifies their
 * links through `/proc`, without entering a network namespace.
 * @throws {HostError} `ip-failed` (also if the link exists), `bad-output`.
 */
export async function restoreBridge(
  { tools, reader }: { readonly tools: ToolRunner; readonly reader: Pick<Reader, "read"> },
  { link, address, prefixLength }: Bridge,
  pids: readonly number[],
  signal: AbortSignal,
): Promise<void> {
  const batch = async (lines: readonly string[]): Promise<void> => {
    if (lines.length === 0) return;
    const done = await tools.run("ip", ["-batch", "-"], signal, [...lines, ""].join("\n"));
    if (done.exitCode !== 0) throw refusal("ip-failed", "ip", done);
  };
  const inner = new Set(pids.flatMap((pid) => linkIndexOf(reader, pid, address) ?? []));
  await batch([`link add ${link} type bridge`]);
  try {
    await batch([
      `link set ${link} addrgenmode none`,
      `address add ${address}/${prefixLength} broadcast + dev ${link}`,
      `link set ${link} up`,
    ]);
    const shown = await tools.run("ip", ["-json", "link", "show", "type", "veth"], signal);
    if (shown.exitCode !== 0) throw refusal("ip-failed", "ip", shown);
    // A link that already has a master was attached by someone else.
    const ends = linksOf(shown.stdout).filter(
      ({ link_index, master }) => link_index !== undefined && inner.has(link_index) && master === undefined,
    );
    await batch(ends.flatMap(({ ifname }) => [`link set ${ifname} master ${link}`, `link set ${ifname} up`]));
  } catch (error) {
    // A partial bridge would pass for a complete one.
    await batch([`link delete ${link}`]).catch(() => undefined);
    throw error;
  }
}

/** Returns the index of the link through which a process reaches this gateway: `net/route` and `net/igmp` of proc_pid_net(5). */
function linkIndexOf(reader: Pick<Reader, "read">, pid: number, gateway: string): number | undefined {
  const wanted = littleEndian(gateway);
  const routes = (reader.read(`/proc/${pid}/net/route`) ?? "").split("\n").map((line) => line.split(/\s+/));
  const [name] = routes.find(([, , via]) => via === wanted) ?? [];
  if (name === undefined) return undefined;
  for (const line of (reader.read(`/proc/${pid}/net/igmp`) ?? "").split("\n")) {
    const [, index, device] = /^(\d+)\s+(\S+)\s*:/.exec(line) ?? [];
    if (device === name) return Number(index);
  }
  return undefined;
}

/** Formats an address in the kernel's byte order of a route table. */
function littleEndian(address: string): string {
  const bytes = address.split(".").map((byte) => Number(byte).toString(16).padStart(2, "0"));
  return bytes.toReversed().join("").toUpperCase();
}

function linksOf(text: string): z.infer<typeof Links> {
  try {
    return Links.parse(JSON.parse(text === "" ? "[]" : text));
  } catch (cause) {
    throw new HostError("bad-output", "cannot parse the output of ip link show", { cause });
  }
}
