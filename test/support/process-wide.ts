import { beforeAll, expect } from "vitest";

// Test files share their worker's process, so what one leaves there can affect another, depending on their distribution.
beforeAll(() => {
  const before = processWide();
  return () => expect(processWide(), "a test file leaves its process as it found it").toEqual(before);
});

function processWide() {
  return { umask: process.umask(), directory: process.cwd(), variables: { ...process.env } };
}
