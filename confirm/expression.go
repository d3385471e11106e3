package confirm

import (
	"errors"
	"fmt"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// Budgets of an expression. Operators write them, but what they run over
// comes from elsewhere: with no loop inside a loop, an expression takes time
// in proportion to its answer, which is bounded.
const (
	maxNodes  = 500
	maxMemory = 100_000 // elements that it makes
)

// environment is what an expression can see.
type environment struct {
	Status int        `expr:"status"`
	Body   any        `expr:"body"`
	Event  eventFacts `expr:"event"`
}

type eventFacts struct {
	ID      string `expr:"id"`
	Key     string `expr:"key"`
	Type    string `expr:"type"`
	Source  string `expr:"source"`
	Payload any    `expr:"payload"`
}

// expression is a compiled condition. It is safe for concurrent use.
type expression struct{ program *vm.Program }

// compile returns an error that points with a caret at what is wrong.
func compile(text string) (*expression, error) {
	if text == "" {
		return nil, errors.New("an expression is missing")
	}
	loops := &nestedLoop{}
	program, err := expr.Compile(text, expr.Env(environment{}), expr.AsBool(), expr.MaxNodes(maxNodes), expr.Patch(loops))
	if err != nil {
		return nil, err
	}
	if loops.found != nil {
		at := &file.Error{Location: loops.found.Location(), Message: "a loop inside a loop is not allowed"}
		return nil, at.Bind(file.NewSource(text))
	}
	return &expression{program}, nil
}

// nestedLoop finds a loop inside another one.
type nestedLoop struct{ found ast.Node }

// Visit is called for each node of an expression.
func (v *nestedLoop) Visit(node *ast.Node) {
	outer, ok := (*node).(*ast.PredicateNode)
	if !ok || v.found != nil {
		return
	}
	v.found = ast.Find(outer.Node, func(n ast.Node) bool {
		_, ok := n.(*ast.PredicateNode)
		return ok
	})
}

// isTrue evaluates the condition. Its errors say where in the expression, and
// nothing of the values.
func (e *expression) isTrue(env environment) (bool, error) {
	machine := vm.VM{MemoryBudget: maxMemory}
	result, err := machine.Run(e.program, env)
	if err != nil {
		var at *file.Error
		if errors.As(err, &at) {
			return false, fmt.Errorf("it cannot be evaluated over this answer, at %d:%d", at.Line, at.Column+1)
		}
		return false, errors.New("it cannot be evaluated over this answer")
	}
	switch v := result.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	}
	return false, fmt.Errorf("it must be true or false, and is a %T", result)
}
