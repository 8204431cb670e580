"use strict";
// Which samples are shown and in which order.
(function () {
  const DISAGREE = 0.5; // of a component's range

  const isTruncated = (sample) => sample.finish === "length";
  const isGraded = (sample) => ["", "ok", "no_answer"].includes(sample.status);

  const passes = {
    all: () => true,
    right: (sample) => sample.correct === true,
    wrong: (sample) => sample.correct === false,
    solved: (sample) => sample.newly === "solved",
    lost: (sample) => sample.newly === "lost",
    truncated: isTruncated,
    no_answer: (sample) => sample.status === "no_answer",
    disagree: (sample) => sample.disagreement >= DISAGREE,
    failed: (sample) => !isGraded(sample),
    tokens: (sample) => Boolean(sample.tokens),
  };

  // Highest value first; samples without the value stand last in either direction.
  function by(value, sign) {
    const rank = (sample) => {
      const found = value(sample);
      return found === null || found === undefined ? -Infinity : sign * found;
    };
    return (a, b) => {
      const x = rank(a);
      const y = rank(b);
      return x === y ? a.order - b.order : x < y ? 1 : -1;
    };
  }

  const orders = {
    order: (a, b) => a.order - b.order,
    high: by((sample) => sample.reward, 1),
    low: by((sample) => sample.reward, -1),
    long: by((sample) => sample.length, 1),
    short: by((sample) => sample.length, -1),
    disagree: by((sample) => sample.disagreement, 1),
    entropy: by((sample) => sample.entropy, 1),
  };

  const keyOf = (sample) => sample.set + "\n" + sample.prompt_id + "\n" + sample.prompt;

  // The samples of each prompt of each set: prompt -> step -> samples, steps rising.
  function occasions(samples) {
    const found = new Map();
    for (const sample of samples) {
      const key = keyOf(sample);
      if (!found.has(key)) {
        found.set(key, new Map());
      }
      const steps = found.get(key);
      steps.has(sample.step) ? steps.get(sample.step).push(sample) : steps.set(sample.step, [sample]);
    }
    for (const [key, steps] of found) {
      found.set(key, new Map([...steps].sort(([a], [b]) => a - b)));
    }
    return found;
  }

  // Marks what was newly solved or lost since the prompt was last seen, and how far the parts of a reward disagree.
  function annotate(samples) {
    const byPrompt = occasions(samples);
    for (const steps of byPrompt.values()) {
      let before = null;
      for (const group of steps.values()) {
        const right = group.some((sample) => sample.correct === true);
        const known = right || group.some((sample) => sample.correct === false);
        for (const sample of group) {
          sample.newly = null;
          if (before === false && sample.correct === true) {
            sample.newly = "solved";
          } else if (before === true && !right && sample.correct === false) {
            sample.newly = "lost";
          }
        }
        before = known ? right : before;
      }
    }
    const parts = (sample) => [...Object.entries(sample.components), ["right", sample.correct === null ? null : Number(sample.correct)]];
    const ranges = new Map();
    for (const sample of samples) {
      for (const [name, value] of parts(sample)) {
        if (value !== null) {
          const range = ranges.get(name) || [value, value];
          ranges.set(name, [Math.min(range[0], value), Math.max(range[1], value)]);
        }
      }
    }
    for (const sample of samples) {
      const places = [];
      for (const [name, value] of parts(sample)) {
        const [low, high] = ranges.get(name) || [0, 0];
        if (value !== null && high > low) {
          places.push((value - low) / (high - low));
        }
      }
      sample.disagreement = places.length > 1 ? Math.max(...places) - Math.min(...places) : null;
    }
    return byPrompt;
  }

  Object.assign(window.Surefoot, { passes, orders, annotate, keyOf, isTruncated, isGraded });
})();
