import { z } from "zod";
import { word } from "./lines.ts";
import type { ToolRunner } from "./tool.ts";

const Shown = z.array(
  z.object({
    addr_info: z
      .array(
        z.object({
          local: z.string(),
          prefixlen: z.int(),
          broadcast: z.string().optional(),
          label: z.string().optional(),
          noprefixroute: z.boolean().optional(),
        }),
      )
      // Other links are empty objects.
      .default([]),
  }),
);

/** The IPv4 addresses of a link that no DHCP client has given a lifetime, each as the line of `ip -batch` that sets it; none when it is gone. */
export async function lastingAddresses(
  tools: ToolRunner,
  link: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const { exitCode, stdout } = await tools.run(
    "ip",
    ["-4", "-json", "address", "show", "dev", link, "permanent"],
    signal,
  );
  const shown = exitCode === 0 ? Shown.safeParse(parsed(stdout)) : undefined;
  if (shown?.success !== true) return [];
  return shown.data.flatMap(({ addr_info }) =>
    addr_info.map(({ local, prefixlen, broadcast, label, noprefixroute }) =>
      [
        `address replace ${word(`${local}/${prefixlen}`)}`,
        ...(broadcast === undefined ? [] : [`brd ${word(broadcast)}`]),
        `dev ${word(link)}`,
        ...(label === undefined ? [] : [`label ${word(label)}`]),
        ...(noprefixroute === true ? ["noprefixroute"] : []),
      ].join(" "),
    ),
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
