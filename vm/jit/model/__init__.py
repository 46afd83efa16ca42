"""The code of one function as a graph: states, slots, expression trees and the type lattice."""
