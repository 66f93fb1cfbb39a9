import { defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** What takes longest begins first, so that the workers end together; the order of the others is vitest's own. */
const LONGEST: readonly RegExp[] = [
  /unit\/overlay\/mesh-succession/,
  /unit\/host\/network\/dhcp\./,
  /unit\/overlay\/mesh\/paths\/paths/,
  /unit\/agent\/reconcile\/commit\./,
  /unit\/overlay\/(overlay|overlay-mesh|mesh\/peers\/many)\./,
  /e2e\/(containers-engine|network-wan-dhcp)\./,
  /e2e\/(mesh-gateways|disk|network-dhcp|network-interrupted)\./,
  /e2e\/(network-(taken-back|faults)|containers-(reached|images)|mesh-nodes|names-and-addresses|limits|cli\/agent-faults)\./,
  /e2e\/(network-(lease|strangers|owner|forward-drops|kill-points)|containers(-killed)?|guard|clock|overlay-killed|cli\/help)\./,
];

const rank = ({ moduleId }: TestSpecification): number => {
  const at = LONGEST.findIndex((path) => path.test(moduleId));
  return at === -1 ? LONGEST.length : at;
};

class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b));
  }
}

// Tests mostly wait: for children, for sockets, for the disk. One worker more than the two cores of a small machine keeps both busy,
// and two where what runs are other programs, most of whose time is a lease's or a window's.
const maxWorkers = { unit: 3, e2e: 4 };

// By itself it gives up after a second, which is none for a busy machine.
const expectations = { poll: { timeout: 30_000 } };

export default defineConfig({
  test: {
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "unit",
          include: ["test/unit/**/*.test.ts"],
          testTimeout: 60_000,
          expect: expectations,
          maxWorkers: maxWorkers.unit,
          // No module keeps state and none is mocked, and loading them anew for each file takes longer than most of them.
          isolate: false,
        },
      },
      {
        test: {
          name: "e2e",
          include: ["test/e2e/**/*.test.ts"],
          testTimeout: 120_000,
          hookTimeout: 120_000,
          expect: expectations,
          maxWorkers: maxWorkers.e2e,
        },
      },
    ],
  },
});
