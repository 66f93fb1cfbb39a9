import { HostError } from "../../errors.ts";
import { readLink } from "./ip/links.ts";
import type { Reader } from "../reader.ts";
import type { NetworkLedger } from "./state/ledger.ts";
import type { LinkState } from "./state/state.ts";
import { refusal, type ToolRunner } from "./ip/tool.ts";

type Fixed = NonNullable<LinkState["fixed"]>;

/** Speed and duplex of links through ethtool(8). The ledger records our settings, because the kernel does not show who made them. */
export class LinkSpeed {
  readonly #tools: ToolRunner;
  readonly #reader: Reader;
  readonly #ledger: NetworkLedger;

  constructor(tools: ToolRunner, reader: Reader, ledger: NetworkLedger) {
    this.#tools = tools;
    this.#reader = reader;
    this.#ledger = ledger;
  }

  /** Returns our fixed settings by link; shows the driver's speed and duplex if they differ. */
  async observe(): Promise<ReadonlyMap<string, Fixed>> {
    const { fixed } = await this.#ledger.content();
    return new Map(
      fixed.map(({ link, speedMbps, duplex }) => {
        // A link without a carrier shows neither.
        const shown = readLink(this.#reader, link);
        return [link, { speedMbps: shown?.speedMbps ?? speedMbps, duplex: shown?.duplex ?? duplex }];
      }),
    );
  }

  /**
   * Fixes speed and duplex, or restores negotiation.
   * @throws {HostError} `unsupported` without ethtool, or if the driver does not support it; `ethtool-failed`.
   */
  async set(link: string, fixed: Fixed | undefined, signal: AbortSignal): Promise<void> {
    const before = (await this.#ledger.content()).fixed;
    const others = before.filter((one) => one.link !== link);
    if (fixed !== undefined) await this.#ledger.change({ fixed: [...others, { link, ...fixed }] });
    const wanted =
      fixed === undefined
        ? ["autoneg", "on"]
        : ["autoneg", "off", "speed", `${fixed.speedMbps}`, "duplex", fixed.duplex];
    try {
      const set = await this.#tools.run("ethtool", ["-s", link, ...wanted], signal);
      if (set.exitCode !== 0) {
        const cannot = /not supported|not implemented|Invalid argument/i.test(set.stderr);
        throw refusal(cannot ? "unsupported" : "ethtool-failed", "ethtool", set);
      }
    } catch (error) {
      // A refused setting is not applied.
      await this.#ledger.change({ fixed: before });
      if (!(error instanceof HostError) || error.code !== "tool-missing") throw error;
      throw new HostError("unsupported", "speed and duplex require ethtool, which is not installed", { cause: error });
    }
    if (fixed === undefined) await this.#ledger.change({ fixed: others });
  }
}
