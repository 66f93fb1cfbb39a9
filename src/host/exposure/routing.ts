import { z } from "zod";
import { HostError } from "../../errors.ts";
import { refusal, type ToolRunner } from "../network/ip/tool.ts";

/** The routing protocol number for containers. The section `network` has its own and removes routes that carry it. */
export const CONTAINER_PROTOCOL = 219;
const LINK_NAME = /^hfc[0-9a-f]{12}$/;
const RTN_UNREACHABLE = "7";
const SHOW = `rule show\nroute show table all protocol ${CONTAINER_PROTOCOL}\nlink show type veth\n`;

/** The machine's routing for containers; each line in the syntax of ip(8) without the protocol. */
export interface RoutingState {
  /** `priority 5110 from 172.18.0.16 lookup 1000`. */
  readonly rules: readonly string[];
  /** `172.18.0.0/16 dev holdfast0 scope link table 1000`. */
  readonly routes: readonly string[];
  /** The host's ends of the links into containers. */
  readonly links: readonly string[];
}

const Rules = z.array(
  z.object({
    priority: z.number(),
    src: z.string().default("all"),
    iif: z.string().optional(),
    table: z.string().optional(),
    action: z.string().optional(),
    protocol: z.string().default("0"),
  }),
);
const Routes = z.array(
  z.object({
    dst: z.string(),
    gateway: z.string().optional(),
    dev: z.string().optional(),
    table: z.string().default("254"),
    flags: z.array(z.string()).default([]),
  }),
);
const Links = z.array(z.object({ ifname: z.string() }));

/** Manages rules by source, routes to the bridge, and links, with ip(8). */
export class ContainerRouting {
  readonly #tools: ToolRunner;

  constructor(tools: ToolRunner) {
    this.#tools = tools;
  }

  /** @throws {HostError} `ip-failed`, `bad-output`. */
  async observe(signal: AbortSignal): Promise<RoutingState> {
    const shown = await this.#tools.run("ip", ["-4", "-N", "-json", "-batch", "-"], signal, SHOW);
    if (shown.exitCode !== 0) throw refusal("ip-failed", "ip", shown);
    const [rules, routes, links] = shown.stdout.split("\n").filter((line) => line.trim() !== "");
    return {
      rules: read(Rules, rules).flatMap((rule) =>
        rule.protocol === String(CONTAINER_PROTOCOL) ? [ruleText(rule)] : [],
      ),
      routes: read(Routes, routes).map(routeText),
      // The list has an empty object for each link that is not shown.
      links: read(z.array(z.unknown()), links).flatMap((link) => {
        const name = Links.element.safeParse(link).data?.ifname ?? "";
        return LINK_NAME.test(name) ? [name] : [];
      }),
    };
  }

  /** Runs lines of `ip -batch`. @throws {HostError} `ip-failed`. */
  async run(lines: readonly string[], signal: AbortSignal, options: readonly string[] = []): Promise<void> {
    if (lines.length === 0) return;
    const done = await this.#tools.run("ip", [...options, "-batch", "-"], signal, [...lines, ""].join("\n"));
    if (done.exitCode !== 0) throw refusal("ip-failed", "ip", done);
  }
}

export const addRule = (rule: string): string => `rule add ${rule} protocol ${CONTAINER_PROTOCOL}`;
export const deleteRule = (rule: string): string => `rule delete ${rule} protocol ${CONTAINER_PROTOCOL}`;
export const addRoute = (route: string): string => `route replace ${route} protocol ${CONTAINER_PROTOCOL}`;
export const deleteRoute = (route: string): string => `route delete ${route} protocol ${CONTAINER_PROTOCOL}`;

function ruleText({ priority, src, iif, table, action }: z.infer<typeof Rules>[number]): string {
  const from = src === "all" ? "" : ` from ${src}`;
  const link = iif === undefined ? "" : ` iif ${iif}`;
  const then = action === RTN_UNREACHABLE ? "unreachable" : `lookup ${table ?? ""}`;
  return `priority ${priority}${from}${link} ${then}`;
}

function routeText({ dst, gateway, dev, table, flags }: z.infer<typeof Routes>[number]): string {
  const via = gateway === undefined ? "" : ` via ${gateway}`;
  const how = gateway === undefined ? " scope link" : flags.includes("onlink") ? " onlink" : "";
  return `${dst}${via} dev ${dev ?? ""}${how} table ${table}`;
}

function read<T extends z.ZodType>(schema: T, text: string | undefined): z.infer<T> {
  try {
    return schema.parse(JSON.parse(text ?? ""));
  } catch (error) {
    throw new HostError("bad-output", "cannot parse the output of ip for containers", { cause: error });
  }
}
