import { z } from "zod";
import { word } from "../ip/lines.ts";
import type { ToolRunner } from "../ip/tool.ts";
import { defined } from "../../../lib/defined.ts";

/** INFINITY_LIFE_TIME of the kernel. */
const FOREVER = 0xffff_ffff;

const Shown = z.array(
  z.object({
    ifindex: z.int().optional(),
    addr_info: z
      .array(
        z.object({
          local: z.string(),
          prefixlen: z.int(),
          broadcast: z.string().optional(),
          label: z.string().optional(),
          noprefixroute: z.boolean().optional(),
          valid_life_time: z.number().default(FOREVER),
        }),
      )
      // Other links are empty objects.
      .default([]),
  }),
);

/** The IPv4 addresses of a link, leased and permanent. */
export interface LeasedAndLasting {
  /** Absent if the link does not exist. */
  readonly index?: number;
  /** Addresses without a lifetime, each as the `ip -batch` line that adds it. */
  readonly lasting: readonly string[];
  /** Addresses with a lifetime, without prefix lengths. */
  readonly leased: ReadonlySet<string>;
}

/** Reads the addresses of a link; returns none if it does not exist. */
export async function leasedAndLasting(
  tools: ToolRunner,
  link: string,
  signal: AbortSignal,
): Promise<LeasedAndLasting> {
  const { exitCode, stdout } = await tools.run("ip", ["-4", "-json", "address", "show", "dev", link], signal);
  const shown = exitCode === 0 ? Shown.safeParse(parsed(stdout)) : undefined;
  if (shown?.success !== true) return { lasting: [], leased: new Set() };
  const index = shown.data.find(({ ifindex }) => ifindex !== undefined)?.ifindex;
  const all = shown.data.flatMap(({ addr_info }) => addr_info);
  const lasting = all
    .filter(({ valid_life_time }) => valid_life_time === FOREVER)
    .map(({ local, prefixlen, broadcast, label, noprefixroute }) =>
      [
        `address replace ${word(`${local}/${prefixlen}`)}`,
        ...(broadcast === undefined ? [] : [`brd ${word(broadcast)}`]),
        `dev ${word(link)}`,
        ...(label === undefined ? [] : [`label ${word(label)}`]),
        ...(noprefixroute === true ? ["noprefixroute"] : []),
      ].join(" "),
    );
  const leased = new Set(all.filter(({ valid_life_time }) => valid_life_time !== FOREVER).map(({ local }) => local));
  return { ...defined({ index }), lasting, leased };
}

const Routes = z.array(z.object({ prefsrc: z.string().optional() }));

/** Returns the source addresses of the routes that a selector of ip-route(8) matches. */
export async function sourcesOf(
  tools: ToolRunner,
  selector: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const { exitCode, stdout } = await tools.run("ip", ["-4", "-json", "route", "show", ...selector], signal);
  const shown = exitCode === 0 ? Routes.safeParse(parsed(stdout)) : undefined;
  return new Set(shown?.success === true ? shown.data.flatMap(({ prefsrc }) => prefsrc ?? []) : []);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
