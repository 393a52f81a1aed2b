/**
 * What every Backend must do, as cases without a test framework: each package that implements the port runs them over its own.
 *
 *   test.for(backendConformance(subject))("$name", async ({ run, skip }, context) => {
 *     context.skip(skip !== undefined, skip);
 *     await expect(run()).resolves.toBeUndefined();
 *   });
 */

import assert from "node:assert/strict";
import { type ConformanceSubject, conformanceChecks } from "./conformance-checks.ts";

export type { ConformanceSubject } from "./conformance-checks.ts";

export interface ConformanceCase {
  readonly name: string;
  readonly run: () => Promise<void>;
  /** Why the case does not run. */
  readonly skip?: string;
}

/** The cases for one implementation of the port. Each opens a backend of its own and closes it. */
export function backendConformance(subject: ConformanceSubject): ConformanceCase[] {
  const { skips = {} } = subject;
  for (const name of Object.keys(skips)) assert.ok(name in conformanceChecks, `there is no conformance case "${name}" to skip`);
  return Object.entries(conformanceChecks).map(([name, check]) => {
    const run = async (): Promise<void> => {
      const backend = await subject.open();
      try {
        await check(backend, subject);
      } finally {
        await backend.close();
      }
    };
    const skip = skips[name];
    return { name, run, ...(skip === undefined ? {} : { skip }) };
  });
}
