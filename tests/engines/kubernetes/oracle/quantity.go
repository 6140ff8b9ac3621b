package main

import (
	"encoding/json"
	"math"

	"gpuflow.test/engines/lines"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quantityCase is one quantity, or two to be added, subtracted and compared.
type quantityCase struct {
	A string  `json:"a"`
	B *string `json:"b"`
}

// parsed is what Kubernetes makes of a text. Text is how it prints a quantity that it only read: some
// spellings are repeated as they were. Value and Milli are absent where they overflow int64.
type parsed struct {
	Canonical string `json:"canonical,omitempty"`
	Text      string `json:"text,omitempty"`
	Value     *int64 `json:"value,omitempty"`
	Milli     *int64 `json:"milli,omitempty"`
	Error     string `json:"error,omitempty"`
}

type quantityOutput struct {
	A          parsed  `json:"a"`
	B          *parsed `json:"b,omitempty"`
	Sum        string  `json:"sum,omitempty"`
	Difference string  `json:"difference,omitempty"`
	Cmp        *int    `json:"cmp,omitempty"`
}

func newQuantityAnswer() (lines.Answer, error) {
	return func(input []byte) (any, error) {
		var question quantityCase
		if err := json.Unmarshal(input, &question); err != nil {
			return nil, err
		}
		return answerQuantity(question), nil
	}, nil
}

func answerQuantity(question quantityCase) quantityOutput {
	a, errA := resource.ParseQuantity(question.A)
	output := quantityOutput{A: describe(a, errA)}
	if question.B == nil {
		return output
	}
	b, errB := resource.ParseQuantity(*question.B)
	described := describe(b, errB)
	output.B = &described
	if errA == nil && errB == nil {
		// Arithmetic may share memory with its operands, so each result starts from a copy.
		sum, difference, left := a.DeepCopy(), a.DeepCopy(), a.DeepCopy()
		sum.Add(b.DeepCopy())
		difference.Sub(b.DeepCopy())
		cmp := left.Cmp(b.DeepCopy())
		output.Sum, output.Difference, output.Cmp = sum.String(), difference.String(), &cmp
	}
	return output
}

func describe(q resource.Quantity, err error) parsed {
	if err != nil {
		return parsed{Error: err.Error()}
	}
	copied := q.DeepCopy()
	number, suffix := copied.CanonicalizeBytes(nil)
	description := parsed{Canonical: string(number) + string(suffix), Text: q.String()}
	if within(q, resource.NewQuantity(math.MinInt64, q.Format), resource.NewQuantity(math.MaxInt64, q.Format)) {
		value := q.Value()
		description.Value = &value
	}
	if within(q, resource.NewMilliQuantity(math.MinInt64, q.Format), resource.NewMilliQuantity(math.MaxInt64, q.Format)) {
		milli := q.MilliValue()
		description.Milli = &milli
	}
	return description
}

func within(q resource.Quantity, low, high *resource.Quantity) bool {
	return q.Cmp(*low) >= 0 && q.Cmp(*high) <= 0
}
